-- Late ticks that run: written as runs due now, and judged once more if not started within $6 (a lease). Index: run_tick. Nothing for a
-- tick that exists.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
fresh AS (
    INSERT INTO fleetcron.run (created_at, due_at, nominal_at, prev_at, late_at, expires_at, priority, job, queue, tenant, schedule, gate, overlap,
                               missed, payload)
    SELECT n.now, n.now, t.nominal_at, t.prev_at, CASE WHEN s.misfire IS NOT NULL THEN n.now + $6::interval END, n.now + s.start_deadline, s.priority, s.job, s.queue, s.tenant, s.name,
           CASE WHEN s.overlap <> 'allow' THEN 'schedule:' || s.name END, nullif(s.overlap, 'allow'), t.missed::json, s.payload
    FROM fleetcron.schedule s, n, unnest($3::timestamptz[], $4::timestamptz[], $5::text[]) t(nominal_at, prev_at, missed)
    WHERE s.id = $2 ORDER BY t.nominal_at
    ON CONFLICT (schedule, nominal_at, generation) WHERE schedule IS NOT NULL DO NOTHING
    RETURNING id, due_at, queue, priority, tenant, job, CASE WHEN late_at IS NULL THEN 0 ELSE 8 END AS flags),
lanes AS (
    INSERT INTO fleetcron.lane (queue, priority, tenant) SELECT DISTINCT queue, priority, tenant FROM fresh f
    WHERE NOT EXISTS (SELECT 1 FROM fleetcron.lane l WHERE l.queue = f.queue AND l.priority = f.priority AND l.tenant = f.tenant))
INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, flags)
SELECT f.queue, f.priority, f.tenant, f.due_at, f.id, (SELECT j.id FROM fleetcron.job j WHERE j.name = f.job), f.flags FROM fresh f RETURNING queue
