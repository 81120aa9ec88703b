-- What comes due before the horizon ?1 enters `ready`, ?2 rows at most; promote_leave.sql takes the same rows out of `timetable`.
-- Index: timetable's key.
INSERT INTO ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
SELECT queue, priority, tenant, due_at, run_id, job_id, attempt, flags FROM timetable WHERE due_at < ?1 ORDER BY due_at, run_id LIMIT ?2
