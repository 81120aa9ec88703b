-- The memoised result of a step. Index: step's key.
SELECT result FROM step WHERE run_id = ?1 AND name = ?2
