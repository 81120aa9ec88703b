-- The registry, with "does a live worker have a handler for it" (a worker with jobs NULL has one for all).
SELECT j.id, j.name, j.spec::text AS spec,
       EXISTS (SELECT 1 FROM fleetcron.worker w
               WHERE w.expires_at > coalesce($1::timestamptz, now()) AND (w.jobs IS NULL OR j.id = ANY (w.jobs))) AS known,
       EXISTS (SELECT 1 FROM fleetcron.limiter l WHERE l.kind = 'job' AND l.name = j.name AND l.paused) AS paused
FROM fleetcron.job j ORDER BY j.name
