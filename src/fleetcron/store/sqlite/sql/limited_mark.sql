-- What this worker had claimed of tenants before it learned that they are limited counts from now on. Index: lease's key, run's id.
UPDATE lease SET tenant = (SELECT r.tenant FROM run r WHERE r.id = lease.run_id)
WHERE worker = ?1 AND tenant IS NULL AND (SELECT r.tenant FROM run r WHERE r.id = lease.run_id) IN (SELECT value FROM json_each(?2))
