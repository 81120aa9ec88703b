-- The runs parked at a gate, what ticks they are, and whether they have had a start. Index: parked's key, run's id.
SELECT r.id, r.schedule, r.nominal_at, r.started_at IS NOT NULL FROM parked p CROSS JOIN run r WHERE p.gate = ?1 AND r.id = p.run_id ORDER BY p.due_at, p.run_id
