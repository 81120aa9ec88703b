-- A leased run passes its gate. No row: the lease is gone. Index: lease's key.
UPDATE lease SET gate = ?4 WHERE worker = ?1 AND run_id = ?2 AND fence = ?3 RETURNING run_id
