-- Of these open runs, those due within the horizon ?2 wait in `ready`. A job that the registry does not know violates NOT NULL. Index: run's id.
INSERT INTO ready (queue, priority, tenant, due_at, run_id, job_id, attempt)
SELECT r.queue, r.priority, r.tenant, r.due_at, r.id, (SELECT j.id FROM job j WHERE j.name = r.job), r.attempt
FROM run r WHERE r.id IN (SELECT value FROM json_each(?1)) AND r.state = 'open' AND r.due_at < ?2
