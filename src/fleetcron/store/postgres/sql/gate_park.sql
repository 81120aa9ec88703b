-- A leased run waits for its gate: out of `lease`, into `parked`, no attempt used. From then on it is late for its gate's sake, not for a
-- misfire's: late_at goes, and flag 2 keeps it out of judgements. Its rate token is given back (see settle.sql).
WITH won AS (DELETE FROM fleetcron.lease WHERE worker = $1 AND run_id = $2 AND fence = $3 RETURNING run_id, attempt, tenant, started_at),
refund AS (
    UPDATE fleetcron.limiter t SET tat = t.tat - t.per * interval '1 microsecond' FROM won w
    WHERE t.kind = 'tenant' AND t.name = w.tenant AND t.per IS NOT NULL AND w.started_at >= t.filled_at),
waits AS (UPDATE fleetcron.run r SET late_at = NULL, gate = $4 FROM won w WHERE r.id = ANY (ARRAY[w.run_id]) RETURNING r.*)
INSERT INTO fleetcron.parked (gate, due_at, run_id, queue, priority, tenant, job_id, attempt, flags)
SELECT $4, r.due_at, r.id, r.queue, r.priority, r.tenant, (SELECT j.id FROM fleetcron.job j WHERE j.name = r.job), w.attempt - 1, 2
FROM won w JOIN waits r ON r.id = w.run_id RETURNING run_id
