-- Who holds these keys. Index: dedup_pkey ("= ANY": see complete.sql).
SELECT d.job, d.tenant, d.key, d.run_id FROM unnest($1::text[], $2::text[], $3::text[]) i(job, tenant, key)
JOIN fleetcron.dedup d ON d.job = ANY (ARRAY[i.job]) AND (d.tenant, d.key) = (i.tenant, i.key)
