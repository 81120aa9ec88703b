-- The memoised result of a step. Index: step_pkey.
SELECT result::text FROM fleetcron.step WHERE run_id = $1 AND name = $2
