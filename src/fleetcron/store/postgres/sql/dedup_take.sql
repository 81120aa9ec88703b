-- Claim dedup keys for new runs: a row comes back for each key that was free, or whose time had passed. A key with a period holds that
-- long from the run's due time. Keys that others hold are not locked: whoever ends a run frees its key while holding other rows that a
-- replacement may wait for. Index: dedup_pkey. Keys arrive sorted, the order in which all inserts take them.
WITH i AS MATERIALIZED (
    SELECT i.job, i.tenant, i.key, i.run_id, i.scope, coalesce(i.due_at, coalesce($1::timestamptz, now())) + i.period AS until
    FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::interval[], $8::timestamptz[])
        AS i(job, tenant, key, run_id, scope, period, due_at)),
over AS (
    UPDATE fleetcron.dedup d SET run_id = i.run_id, scope = i.scope, until = i.until FROM i
    WHERE d.job = ANY (ARRAY[i.job]) AND (d.tenant, d.key) = (i.tenant, i.key) AND d.until <= coalesce($1::timestamptz, now())
    RETURNING d.run_id),
free AS (
    INSERT INTO fleetcron.dedup (job, tenant, key, run_id, scope, until) SELECT * FROM i ORDER BY job, tenant, key
    ON CONFLICT (job, tenant, key) DO NOTHING RETURNING run_id)
SELECT run_id FROM over UNION ALL SELECT run_id FROM free
