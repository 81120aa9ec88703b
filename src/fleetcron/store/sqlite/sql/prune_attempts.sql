-- Attempts of pruned runs. Index: attempt's key.
DELETE FROM attempt WHERE run_id IN (SELECT value FROM json_each(?1))
