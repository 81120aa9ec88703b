-- The runs that these ticks of a schedule have. Index: run_tick.
SELECT r.nominal_at, r.generation, r.state, r.started_at IS NOT NULL
FROM run r WHERE r.schedule = ?1 AND r.nominal_at IN (SELECT value FROM json_each(?2)) ORDER BY r.nominal_at, r.generation
