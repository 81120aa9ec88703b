-- Leases of a worker end. Index: lease's key.
DELETE FROM lease WHERE worker = ?1 AND run_id IN (SELECT value FROM json_each(?2))
