-- Gates that somebody waits for and nobody holds, each with its first waiting run: one probe a gate. Those of limited jobs are
-- not among them (job_line.sql). Index: parked's key, lease_gate.
WITH RECURSIVE g(gate) AS (
    SELECT min(gate) FROM parked
    UNION ALL
    SELECT (SELECT min(p.gate) FROM parked p WHERE p.gate > g.gate) FROM g WHERE g.gate IS NOT NULL)
SELECT p.queue, p.priority, p.tenant, p.due_at, p.run_id, p.job_id, p.attempt, p.flags, p.gate
FROM g CROSS JOIN parked p
WHERE NOT EXISTS (SELECT 1 FROM lease l WHERE l.gate = g.gate) AND substr(g.gate, 1, 4) <> 'job:'
  AND p.gate = g.gate AND (p.due_at, p.run_id) = (SELECT f.due_at, f.run_id FROM parked f WHERE f.gate = g.gate ORDER BY f.due_at, f.run_id LIMIT 1)
