-- Claim up to $8 due runs from the given lanes, in their order, at most `most` of each; lanes carry their lower bound (`floor`), below which
-- this worker knows nothing is left, so that dead rows before it are not walked again.
-- Index: ready_pkey (one range a lane), run_pkey, meta_pkey. Locks: worker FOR KEY SHARE (a rescue of this session waits, or this claim gets
-- nothing), ready SKIP LOCKED. now(), not clock_timestamp(): a volatile bound is a filter, and a short claim would walk every future row.
-- clock_timestamp() is only told back, as the worker's clock; and so is the version of the limits, which this worker may not know yet.
WITH alive AS MATERIALIZED (
    SELECT 1 FROM fleetcron.worker WHERE id = $2 AND expires_at > coalesce($1::timestamptz, now()) FOR KEY SHARE),
pick AS MATERIALIZED (
    SELECT r.tid FROM unnest($3::text[], $4::smallint[], $5::text[], $6::timestamptz[], $10::int[]) AS l(queue, priority, tenant, floor, most)
    CROSS JOIN LATERAL (
        SELECT q.ctid AS tid FROM fleetcron.ready q
        WHERE q.queue = l.queue AND q.priority = l.priority AND q.tenant = l.tenant
          AND q.due_at >= l.floor AND q.due_at <= coalesce($1::timestamptz, now()) + $7::interval
          AND (q.flags & 4 = 0 OR q.due_at <= coalesce($1::timestamptz, now()))  -- 4: has a dedup key, can be replaced until it is due
          AND ($9::int[] IS NULL OR q.job_id = ANY ($9))
        ORDER BY q.due_at, q.run_id LIMIT l.most FOR UPDATE SKIP LOCKED) r
    WHERE EXISTS (SELECT 1 FROM alive) LIMIT $8),
gone AS (
    DELETE FROM fleetcron.ready WHERE ctid = ANY (ARRAY(SELECT tid FROM pick)) RETURNING run_id, attempt, due_at, flags),
undup AS (
    DELETE FROM fleetcron.dedup WHERE run_id = ANY (ARRAY(SELECT run_id FROM gone WHERE flags & 1 = 1))),
leased AS (
    INSERT INTO fleetcron.lease (worker, run_id, fence, attempt, started_at, ahead)
    SELECT $2, run_id, nextval('fleetcron.fence'), attempt + 1, greatest(due_at, coalesce($1::timestamptz, now())),
           due_at > coalesce($1::timestamptz, now()) FROM gone
    RETURNING run_id, fence, attempt)
SELECT l.run_id, l.fence, l.attempt, r.job, r.payload::text, date_part('epoch', r.due_at) AS due,
       r.late_at IS NOT NULL AND r.late_at < coalesce($1::timestamptz, now()) AS late,
       r.schedule, r.nominal_at, r.tenant, r.queue, r.priority, r.key, r.gate, r.overlap, r.expires_at, r.late_at, r.missed::text,
       r.generation, r.deaths, r.prev_at, date_part('epoch', coalesce($1::timestamptz, clock_timestamp())) AS now,
       (SELECT value::bigint FROM fleetcron.meta WHERE key = 'limits') AS limits
FROM leased l JOIN fleetcron.run r ON r.id = ANY (ARRAY[l.run_id])
ORDER BY r.due_at, l.run_id
