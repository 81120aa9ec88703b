-- Close runs that succeeded; the rows that come back are the ones won: lease still there, same worker, same fence (a fence is issued once,
-- so "run in these runs and fence in these fences" is the pair). Lists are probed, never joined to each other: a plan made while `lease` was
-- empty would take the lease first and walk the whole list for each of its rows (500 × 500: 93 ms a batch against 4 ms).
-- Index: lease_pkey, run_pkey. Locks: lease, then run.
WITH won AS (
    DELETE FROM fleetcron.lease WHERE worker = $2 AND run_id = ANY ($3::bigint[]) AND fence = ANY ($4::bigint[])
    RETURNING run_id, fence),
closed AS (
    UPDATE fleetcron.run r SET state = 'succeeded', attempt = d.attempt, fence = d.fence, worker = $2, started_at = d.started_at,
        finished_at = coalesce($1::timestamptz, now()), result = d.result::json, error = NULL, reason = NULL
    FROM unnest($3::bigint[], $4::bigint[], $5::int[], $6::timestamptz[], $7::text[]) d(run_id, fence, attempt, started_at, result)
    WHERE r.id = d.run_id
      AND ((SELECT count(*) FROM won) = cardinality($3::bigint[])
           OR d.run_id = ANY (ARRAY(SELECT run_id FROM won)) AND d.fence = ANY (ARRAY(SELECT fence FROM won)))),
undup AS (
    DELETE FROM fleetcron.dedup WHERE ctid = ANY (ARRAY(  -- in the order in which inserts lock keys
        SELECT k.ctid FROM fleetcron.dedup k
        WHERE k.run_id = ANY ($8::bigint[]) AND k.run_id = ANY (ARRAY(SELECT run_id FROM won)) AND k.until IS NULL
        ORDER BY k.job, k.tenant, k.key FOR UPDATE)))
SELECT run_id FROM won
