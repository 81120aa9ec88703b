-- A lease ends. Index: lease's key.
DELETE FROM lease WHERE worker = ?1 AND run_id = ?2
