-- Gates that nobody holds: their first waiting run goes back to `ready`, due as it was. Run after each gated run, and by the leader every
-- second (but for those of limited jobs: job_unpark.sql), so that a crash between the two costs a second, not a stuck gate. A loose scan: one probe a gate, however many wait at it.
-- Index: parked_pkey, lease_gate.
WITH RECURSIVE gate AS (
    (SELECT p.gate, p.due_at, p.run_id FROM fleetcron.parked p ORDER BY p.gate, p.due_at, p.run_id LIMIT 1)
    UNION ALL
    SELECT n.gate, n.due_at, n.run_id FROM gate g CROSS JOIN LATERAL (
        SELECT p.gate, p.due_at, p.run_id FROM fleetcron.parked p WHERE p.gate > g.gate ORDER BY p.gate, p.due_at, p.run_id LIMIT 1) n),
free AS MATERIALIZED (
    SELECT g.gate, g.due_at, g.run_id FROM gate g WHERE (SELECT 1 FROM fleetcron.lease l WHERE l.gate = g.gate LIMIT 1) IS NULL AND g.gate NOT LIKE 'job:%'),
gone AS (
    DELETE FROM fleetcron.parked p USING free f WHERE p.gate = ANY (ARRAY[f.gate]) AND (p.due_at, p.run_id) = (f.due_at, f.run_id)
    RETURNING p.queue, p.priority, p.tenant, p.due_at, p.run_id, p.job_id, p.attempt, p.flags),
back AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
    SELECT queue, priority, tenant, due_at, run_id, job_id, attempt, flags FROM gone RETURNING queue)
SELECT DISTINCT queue FROM back
