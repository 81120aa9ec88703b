-- The open ticks of a schedule from ?2 on, with the keys of where they may wait. Index: run_tick.
SELECT id, queue, priority, tenant, due_at, gate, nominal_at FROM run
WHERE schedule = ?1 AND nominal_at >= ?2 AND state = 'open' ORDER BY nominal_at
