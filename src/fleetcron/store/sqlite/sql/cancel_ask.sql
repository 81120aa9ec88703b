-- A running run is asked to stop; its worker sees it at the next heartbeat. Index: lease's key, one probe a worker.
UPDATE lease SET cancel = 1 WHERE worker IN (SELECT id FROM worker) AND run_id = ?1 RETURNING run_id
