-- Move what comes due within the horizon (the current and the next minute) from `timetable` to `ready`. Safe for anyone, at any time, by
-- several at once: a row is moved by whoever locks it. Index: timetable_pkey.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
pick AS MATERIALIZED (
    SELECT t.ctid AS tid FROM fleetcron.timetable t
    WHERE t.due_at < date_trunc('minute', coalesce($1::timestamptz, now())) + interval '2 minutes'
    ORDER BY t.due_at, t.run_id LIMIT $2 FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM fleetcron.timetable WHERE ctid = ANY (ARRAY(SELECT tid FROM pick))
    RETURNING queue, priority, tenant, due_at, run_id, job_id, attempt, flags),
moved AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
    SELECT queue, priority, tenant, due_at, run_id, job_id, attempt, flags FROM gone RETURNING 1)
SELECT count(*) FROM moved
