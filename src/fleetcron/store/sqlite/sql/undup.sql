-- Runs that ended give their dedup keys back, but for keys held for a time. Index: dedup_run.
DELETE FROM dedup WHERE run_id IN (SELECT value FROM json_each(?1)) AND until IS NULL
