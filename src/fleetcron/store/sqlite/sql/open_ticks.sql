-- The open ticks of a schedule that have never started, from ?2 on or parked at its gate, with the keys of where they may wait.
-- Index: run_tick; parked's key, run's id.
SELECT id, queue, priority, tenant, due_at, gate, nominal_at FROM run
WHERE schedule = ?1 AND nominal_at >= ?2 AND state = 'open' AND started_at IS NULL
UNION
SELECT r.id, r.queue, r.priority, r.tenant, r.due_at, r.gate, r.nominal_at FROM parked p CROSS JOIN run r
WHERE p.gate = 'schedule:' || ?1 AND r.id = p.run_id AND r.started_at IS NULL
ORDER BY nominal_at
