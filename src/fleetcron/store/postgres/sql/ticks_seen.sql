-- The runs that these ticks of a schedule have. Index: run_tick.
SELECT r.nominal_at, r.generation, r.state::text, r.started_at IS NOT NULL
FROM fleetcron.run r WHERE r.schedule = $1 AND r.nominal_at = ANY ($2::timestamptz[]) ORDER BY r.nominal_at, r.generation
