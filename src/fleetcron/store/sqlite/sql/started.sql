-- Runs that were claimed ahead have started: from now on the death of their worker costs an attempt. Index: lease's key.
UPDATE lease SET ahead = 0 WHERE worker = ?1 AND run_id IN (SELECT value FROM json_each(?2)) AND ahead = 1
