-- Who holds these keys. Index: dedup_pkey.
SELECT d.job, d.tenant, d.key, d.run_id FROM fleetcron.dedup d
JOIN unnest($1::text[], $2::text[], $3::text[]) i(job, tenant, key) ON (d.job, d.tenant, d.key) = (i.job, i.tenant, i.key)
