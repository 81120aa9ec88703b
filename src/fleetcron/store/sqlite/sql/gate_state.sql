-- How many hold a gate, and how many stand before the run (?2 due, ?3 id) in its line: older ones, or while the gate is held anybody who
-- waits (for queue_one, which lets one wait). Index: lease_gate, parked's key.
SELECT h.running, (SELECT count(*) FROM parked p WHERE p.gate = ?1 AND (h.running > 0 OR (p.due_at, p.run_id) < (?2, ?3)))
FROM (SELECT count(*) AS running FROM lease WHERE gate = ?1) h
