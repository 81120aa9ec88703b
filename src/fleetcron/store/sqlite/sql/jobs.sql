-- The registry, with "does a live worker have a handler for it" (a worker with jobs NULL has one for all).
SELECT j.id, j.name, j.spec,
       EXISTS (SELECT 1 FROM worker w
               WHERE w.expires_at > ?1 AND (w.jobs IS NULL OR j.id IN (SELECT value FROM json_each(w.jobs)))) AS known,
       EXISTS (SELECT 1 FROM limiter l WHERE l.kind = 'job' AND l.name = j.name AND l.paused) AS paused
FROM job j ORDER BY j.name
