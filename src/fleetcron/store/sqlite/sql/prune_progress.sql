-- Progress of pruned runs.
DELETE FROM progress WHERE run_id IN (SELECT value FROM json_each(?1))
