-- Forget dead letters; their runs stay in the history.
DELETE FROM dead_letter WHERE run_id IN (SELECT value FROM json_each(?1)) RETURNING run_id
