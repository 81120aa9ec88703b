-- Forget dead letters; their runs stay in the history as failed.
DELETE FROM fleetcron.dead_letter WHERE run_id = ANY ($1::bigint[]) RETURNING run_id
