-- Of these open runs, those due within the horizon ?2 wait in `ready`. A job that the registry does not know violates NOT NULL. Flag 8: a tick
-- that is judged if it does not start in time (late_ticks.sql). Index: run's id.
INSERT INTO ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
SELECT r.queue, r.priority, r.tenant, r.due_at, r.id, (SELECT j.id FROM job j WHERE j.name = r.job), r.attempt,
       iif(r.late_at IS NULL OR r.attempt > 0, 0, 8)
FROM run r WHERE r.id IN (SELECT value FROM json_each(?1)) AND r.state = 'open' AND r.due_at < ?2
