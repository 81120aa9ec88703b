-- Leased runs of a limited job wait in its line: gate_park.sql for many. Index: lease_pkey, limiter_pkey, run_pkey.
WITH won AS (
    DELETE FROM fleetcron.lease WHERE worker = $1 AND run_id = ANY ($2::bigint[]) AND fence = ANY ($3::bigint[])
    RETURNING run_id, attempt, tenant, started_at),
refund AS (
    UPDATE fleetcron.limiter t SET tat = t.tat - w.n * t.per * interval '1 microsecond'
    FROM (SELECT tenant, count(*) AS n, min(started_at) AS first FROM won WHERE tenant IS NOT NULL GROUP BY tenant) w
    WHERE t.kind = 'tenant' AND t.name = w.tenant AND t.per IS NOT NULL AND w.first >= t.filled_at),
waits AS (
    UPDATE fleetcron.run r SET late_at = NULL, gate = $4 WHERE r.id = ANY (ARRAY(SELECT run_id FROM won))
    RETURNING r.id, r.due_at, r.queue, r.priority, r.tenant, r.job)
INSERT INTO fleetcron.parked (gate, due_at, run_id, queue, priority, tenant, job_id, attempt, flags)
SELECT $4, r.due_at, r.id, r.queue, r.priority, r.tenant, (SELECT j.id FROM fleetcron.job j WHERE j.name = r.job), w.attempt - 1, 2
FROM won w JOIN waits r ON r.id = w.run_id RETURNING run_id
