-- A lease counts against its tenant's limits. Index: lease's key.
UPDATE lease SET tenant = ?3 WHERE worker = ?1 AND run_id = ?2
