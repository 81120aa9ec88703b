-- Close runs that succeeded; the rows that come back are the ones won: lease still there, same worker, same fence.
-- "= ANY (ARRAY[x])" is "= x" in a form that leaves the planner one way: the list first, and by it the key of the table. A plan made while
-- the tables were empty would else take the table first and walk the whole list for each of its rows (500 × 50,000: minutes, not 4 ms).
-- Index: lease_pkey, run_pkey, dedup_run. Locks: lease, then run.
WITH done AS (
    SELECT $2::bigint AS worker, d.* FROM unnest($3::text::bigint[], $4::text::bigint[], $5::text::bigint[], $6::text[])
        AS d(run_id, fence, started_us, result) OFFSET 0),
won AS (
    DELETE FROM fleetcron.lease l USING done d WHERE l.worker = ANY (ARRAY[d.worker]) AND l.run_id = d.run_id AND l.fence = d.fence
    RETURNING l.run_id, l.fence, l.attempt, d.started_us, d.result),
closed AS (
    UPDATE fleetcron.run r SET state = 'succeeded', attempt = w.attempt, fence = w.fence, worker = $2, started_at = to_timestamp(w.started_us * '1e-6'::float8),
        finished_at = coalesce($1::timestamptz, now()), result = w.result::json, error = NULL, reason = NULL
    FROM won w WHERE r.id = ANY (ARRAY[w.run_id])),
undup AS (
    DELETE FROM fleetcron.dedup WHERE run_id = ANY ($7::bigint[]) AND run_id = ANY (ARRAY(SELECT run_id FROM won)) AND until IS NULL)
SELECT run_id FROM won
