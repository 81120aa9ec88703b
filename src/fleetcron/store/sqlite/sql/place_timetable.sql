-- Of these open runs, those due later than the horizon ?2 wait in `timetable`. Index: run's id.
INSERT INTO timetable (due_at, run_id, queue, priority, tenant, job_id, attempt, flags)
SELECT r.due_at, r.id, r.queue, r.priority, r.tenant, (SELECT j.id FROM job j WHERE j.name = r.job), r.attempt,
       iif(r.late_at IS NULL OR r.attempt > 0, 0, 8)
FROM run r WHERE r.id IN (SELECT value FROM json_each(?1)) AND r.state = 'open' AND r.due_at >= ?2
