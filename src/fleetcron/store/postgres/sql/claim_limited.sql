-- claim.sql for lanes of limited tenants, whose limiters this transaction has locked: each lane gives at most `most` runs, each tenant at most
-- `room`, also over several lanes. A rate token is taken for each. The leases name the tenant: that is what the next claim counts.
-- Tokens go by the time of this statement, not of the transaction's begin: the nearer to the start, the better is it kept to.
-- Index: ready_pkey (one range a lane), run_pkey, limiter_pkey. Locks: limiter (held), worker FOR KEY SHARE, ready SKIP LOCKED.
WITH alive AS MATERIALIZED (
    SELECT 1 FROM fleetcron.worker WHERE id = $2 AND expires_at > coalesce($1::timestamptz, now()) FOR KEY SHARE),
pick AS MATERIALIZED (
    SELECT r.tid, l.nth, l.room, row_number() OVER (PARTITION BY l.tenant ORDER BY l.nth, r.due_at, r.run_id) AS n
    FROM unnest($3::text[], $4::smallint[], $5::text[], $6::timestamptz[], $7::int[], $8::int[]) WITH ORDINALITY
        AS l(queue, priority, tenant, floor, most, room, nth)
    CROSS JOIN LATERAL (
        SELECT q.ctid AS tid, q.due_at, q.run_id FROM fleetcron.ready q
        WHERE q.queue = l.queue AND q.priority = l.priority AND q.tenant = l.tenant
          AND q.due_at >= l.floor AND q.due_at <= coalesce($1::timestamptz, now())
          AND ($10::int[] IS NULL OR q.job_id = ANY ($10))
        ORDER BY q.due_at, q.run_id LIMIT least(l.most, l.room) FOR UPDATE SKIP LOCKED) r
    WHERE EXISTS (SELECT 1 FROM alive)),
gone AS (
    DELETE FROM fleetcron.ready WHERE ctid = ANY (ARRAY(SELECT tid FROM pick WHERE n <= room ORDER BY nth, n LIMIT $9))
    RETURNING run_id, attempt, flags, tenant),
spent AS (
    UPDATE fleetcron.limiter t SET tat = greatest(t.tat, coalesce($1::timestamptz, statement_timestamp())) + g.n * t.per * interval '1 microsecond',
        filled_at = CASE WHEN t.tat <= coalesce($1::timestamptz, statement_timestamp()) THEN coalesce($1::timestamptz, statement_timestamp()) ELSE t.filled_at END
    FROM (SELECT tenant, count(*) AS n FROM gone GROUP BY tenant) g WHERE t.kind = 'tenant' AND t.name = g.tenant AND t.per IS NOT NULL),
undup AS (
    DELETE FROM fleetcron.dedup WHERE ctid = ANY (ARRAY(  -- in the order in which inserts lock keys
        SELECT k.ctid FROM fleetcron.dedup k WHERE k.run_id = ANY (ARRAY(SELECT run_id FROM gone WHERE flags & 1 = 1))
        ORDER BY k.job, k.tenant, k.key FOR UPDATE))),
leased AS (
    INSERT INTO fleetcron.lease (worker, run_id, fence, attempt, started_at, tenant)
    SELECT $2, run_id, nextval('fleetcron.fence'), attempt + 1, coalesce($1::timestamptz, statement_timestamp()), tenant FROM gone
    RETURNING run_id, fence, attempt)
SELECT l.run_id, l.fence, l.attempt, r.job, r.payload::text, r.due_at,
       r.late_at IS NOT NULL AND r.late_at < coalesce($1::timestamptz, now()) AS late,
       r.schedule, r.nominal_at, r.tenant, r.queue, r.priority, r.key, r.gate, r.overlap, r.expires_at, r.late_at, r.missed::text,
       r.generation, r.deaths, r.prev_at, coalesce($1::timestamptz, clock_timestamp()) AS now
FROM leased l JOIN fleetcron.run r ON r.id = l.run_id
ORDER BY r.due_at, l.run_id
