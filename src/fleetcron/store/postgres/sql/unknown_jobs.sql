-- Due runs of jobs that no live worker has a handler for.
SELECT j.name, count(*) AS runs FROM fleetcron.ready q JOIN fleetcron.job j ON j.id = q.job_id
WHERE q.due_at <= coalesce($1::timestamptz, now())
  AND NOT EXISTS (SELECT 1 FROM fleetcron.worker w
                  WHERE w.expires_at > coalesce($1::timestamptz, now()) AND (w.jobs IS NULL OR q.job_id = ANY (w.jobs)))
GROUP BY j.name ORDER BY j.name
