-- What the limits of these jobs leave. Index: limiter's key, lease_job.
SELECT l.name, iif(l.max_running IS NULL, 0, (SELECT count(*) FROM lease e WHERE e.job = l.name)) AS running, l.max_running, l.per, l.burst,
       max(l.tat - ?1, 0) AS used
FROM json_each(?2) t CROSS JOIN limiter l WHERE l.kind = 'job' AND l.name = t.value
