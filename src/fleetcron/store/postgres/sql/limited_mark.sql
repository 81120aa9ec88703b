-- What this worker had claimed of tenants before it learned that they are limited counts from now on. Index: lease_pkey, run_pkey.
UPDATE fleetcron.lease l SET tenant = r.tenant FROM fleetcron.run r
WHERE l.worker = $1 AND l.tenant IS NULL AND r.id = l.run_id AND r.tenant = ANY ($2::text[])
