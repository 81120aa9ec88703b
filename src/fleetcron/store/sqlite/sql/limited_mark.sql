-- What this worker had claimed before it learned that these tenants (?2) and jobs (?3) are limited counts from now on. Index: lease's key, run's id.
UPDATE lease SET tenant = iif(r.tenant IN (SELECT value FROM json_each(?2)), r.tenant, lease.tenant),
    job = iif(r.job IN (SELECT value FROM json_each(?3)), r.job, lease.job)
FROM run r WHERE lease.worker = ?1 AND r.id = lease.run_id
    AND (r.tenant IN (SELECT value FROM json_each(?2)) OR r.job IN (SELECT value FROM json_each(?3)))
