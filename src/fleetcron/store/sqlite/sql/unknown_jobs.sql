-- Due runs of jobs that no live worker has a handler for.
SELECT j.name, q.runs
FROM (SELECT job_id, count(*) AS runs FROM ready WHERE due_at <= ?1 GROUP BY job_id) q JOIN job j ON j.id = q.job_id
WHERE NOT EXISTS (SELECT 1 FROM worker w
                  WHERE w.expires_at > ?1 AND (w.jobs IS NULL OR q.job_id IN (SELECT value FROM json_each(w.jobs))))
ORDER BY j.name
