-- Close runs that succeeded; the rows that come back are the ones won: lease still there, same worker, same fence. A fence is never
-- issued twice, so "fence = ANY" is the pair (run, fence). Index: lease_pkey, run_pkey. Locks: lease, then run.
WITH won AS (
    DELETE FROM fleetcron.lease WHERE worker = $2 AND run_id = ANY ($3::bigint[]) AND fence = ANY ($4::bigint[])
    RETURNING run_id, fence, attempt),
closed AS (
    UPDATE fleetcron.run r SET state = 'succeeded', attempt = w.attempt, fence = w.fence, worker = $2, started_at = d.started_at,
        finished_at = coalesce($1::timestamptz, now()), result = d.result::json, error = NULL, reason = NULL
    FROM won w JOIN unnest($3::bigint[], $5::timestamptz[], $6::text[]) d(run_id, started_at, result) ON d.run_id = w.run_id
    WHERE r.id = w.run_id),
undup AS (
    DELETE FROM fleetcron.dedup WHERE run_id = ANY ($7::bigint[]) AND run_id = ANY (ARRAY(SELECT run_id FROM won)) AND until IS NULL)
SELECT run_id FROM won
