-- Whatever else a worker still holds goes back to `ready`, no attempt used. Index: lease's key, run's id.
INSERT INTO ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
SELECT r.queue, r.priority, r.tenant, r.due_at, r.id, (SELECT j.id FROM job j WHERE j.name = r.job), l.attempt - 1,
       iif(r.late_at IS NULL OR l.attempt > 1, 0, 8)
FROM lease l CROSS JOIN run r WHERE l.worker = ?1 AND l.cancel = 0 AND r.id = l.run_id
