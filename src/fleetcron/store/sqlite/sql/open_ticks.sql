-- The open ticks of a schedule that have never started, but for a backfill's (priority 10), with the keys of where they may wait: from ?2 on;
-- of the last ?4 ticks up to ?3, which an earlier judgement may have let run; and those parked at its gate.
-- Index: run_tick twice; parked's key, run's id.
SELECT id, queue, priority, tenant, due_at, gate, nominal_at FROM (
    SELECT * FROM run WHERE schedule = ?1 AND nominal_at >= ?2
    UNION
    SELECT * FROM (SELECT * FROM run WHERE schedule = ?1 AND nominal_at <= ?3 AND priority <= 9 ORDER BY nominal_at DESC LIMIT ?4)
    UNION
    SELECT r.* FROM parked p CROSS JOIN run r WHERE p.gate = 'schedule:' || ?1 AND r.id = p.run_id)
WHERE state = 'open' AND started_at IS NULL AND priority <= 9
ORDER BY nominal_at
