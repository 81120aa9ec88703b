-- Of these runs, those that a worker has claimed ahead and not started are asked to stop there. Index: lease's key, a probe a worker and run.
UPDATE lease SET cancel = 1 WHERE worker IN (SELECT id FROM worker) AND run_id IN (SELECT value FROM json_each(?1)) AND ahead = 1
