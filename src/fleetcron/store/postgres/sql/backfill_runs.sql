-- Ticks of a backfill, written as runs due now by what their schedule says at present, in the given order. Below all live work (priority 10);
-- without a gate (the overlap policy is for live runs), without late_at (they are late on purpose) and without a deadline. The key only tells
-- whose they are, for `runs`; no dedup row goes with it. Nothing for a run that exists. Index: schedule_pkey, run_tick.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
fresh AS (
    INSERT INTO fleetcron.run (created_at, due_at, nominal_at, prev_at, generation, priority, job, queue, tenant, schedule, key, payload)
    SELECT n.now, n.now, t.nominal_at, t.prev_at, t.generation, 10, s.job, s.queue, s.tenant, s.name, 'backfill:' || $2::bigint, s.payload
    FROM fleetcron.schedule s, n, unnest($4::timestamptz[], $5::timestamptz[], $6::int[]) WITH ORDINALITY
        AS t(nominal_at, prev_at, generation, nth)
    WHERE s.id = $3 ORDER BY t.nth
    ON CONFLICT (schedule, nominal_at, generation) WHERE schedule IS NOT NULL DO NOTHING
    RETURNING id, due_at, queue, priority, tenant, job),
lanes AS (
    INSERT INTO fleetcron.lane (queue, priority, tenant) SELECT DISTINCT queue, priority, tenant FROM fresh f
    WHERE NOT EXISTS (SELECT 1 FROM fleetcron.lane l WHERE l.queue = f.queue AND l.priority = f.priority AND l.tenant = f.tenant)),
listed AS (INSERT INTO fleetcron.backfill_run (backfill, run_id) SELECT $2::bigint, id FROM fresh),
soon AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id)
    SELECT f.queue, f.priority, f.tenant, f.due_at, f.id, (SELECT j.id FROM fleetcron.job j WHERE j.name = f.job) FROM fresh f)
SELECT count(*) FROM fresh
