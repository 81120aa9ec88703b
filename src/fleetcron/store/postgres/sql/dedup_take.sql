-- Claim dedup keys for new runs: a row comes back for each key that was free (or whose time had passed). A key with a period holds that
-- long from the run's due time. Index: dedup_pkey. Keys arrive sorted, the lock order of every keyed insert.
INSERT INTO fleetcron.dedup AS d (job, tenant, key, run_id, scope, until)
SELECT i.job, i.tenant, i.key, i.run_id, i.scope, coalesce(i.due_at, coalesce($1::timestamptz, now())) + i.period
FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::interval[], $8::timestamptz[])
    AS i(job, tenant, key, run_id, scope, period, due_at)
ORDER BY i.job, i.tenant, i.key
ON CONFLICT (job, tenant, key) DO UPDATE SET run_id = excluded.run_id, scope = excluded.scope, until = excluded.until
    WHERE d.until <= coalesce($1::timestamptz, now())
RETURNING run_id
