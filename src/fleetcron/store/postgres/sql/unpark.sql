-- Gates that nobody holds: their first waiting run goes back to `ready`, due as it was. Run after each gated run, and by the leader every
-- second, so that a crash between the two costs a second, not a stuck gate. Index: parked_pkey, lease_gate.
WITH free AS MATERIALIZED (
    SELECT DISTINCT ON (p.gate) p.gate, p.due_at, p.run_id FROM fleetcron.parked p
    WHERE NOT EXISTS (SELECT 1 FROM fleetcron.lease l WHERE l.gate = p.gate) ORDER BY p.gate, p.due_at, p.run_id),
gone AS (
    DELETE FROM fleetcron.parked p USING free f WHERE (p.gate, p.due_at, p.run_id) = (f.gate, f.due_at, f.run_id)
    RETURNING p.queue, p.priority, p.tenant, p.due_at, p.run_id, p.job_id, p.attempt, p.flags),
back AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
    SELECT queue, priority, tenant, due_at, run_id, job_id, attempt, flags FROM gone RETURNING queue)
SELECT DISTINCT queue FROM back
