-- Steps of pruned runs. Index: step's key.
DELETE FROM step WHERE run_id IN (SELECT value FROM json_each(?1))
