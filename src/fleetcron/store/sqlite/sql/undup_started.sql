-- Runs that started give back the keys they held until then. Index: dedup_run.
DELETE FROM dedup WHERE run_id IN (SELECT value FROM json_each(?1))
