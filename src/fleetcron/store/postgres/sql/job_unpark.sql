-- The first of a limited job's line go back to `ready`, due as they were; returns the queues. How many is a guess: their admission decides.
-- Index: parked_pkey.
WITH pick AS MATERIALIZED (
    SELECT ctid AS tid FROM fleetcron.parked WHERE gate = 'job:' || $1 ORDER BY due_at, run_id LIMIT $2 FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM fleetcron.parked WHERE ctid = ANY (ARRAY(SELECT tid FROM pick))
    RETURNING queue, priority, tenant, due_at, run_id, job_id, attempt, flags),
back AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
    SELECT queue, priority, tenant, due_at, run_id, job_id, attempt, flags FROM gone RETURNING queue)
SELECT DISTINCT queue FROM back
