-- The unstarted ticks of a schedule that this transaction has locked and that wait in `ready`, due up to now; each is locked, those being
-- claimed right now are passed over (their claimers judge them). Those without late_at cannot be misfires: they have started once, or
-- waited for their gate, or are of a one-shot or a backfill (priority 10). $3: nothing older waits that is due at its own instant
-- (first_due.sql minus jitter). What an earlier judgement let run is due when it was judged: it is among the last $5 ticks up to $4.
-- Index: run_tick twice, ready_pkey.
WITH tick AS MATERIALIZED (
    SELECT r.id, r.nominal_at, r.missed::text AS missed, r.queue, r.priority, r.tenant, r.due_at FROM fleetcron.run r
    WHERE r.schedule = $2 AND r.nominal_at >= $3 AND r.nominal_at <= coalesce($1::timestamptz, now()) AND r.state = 'open' AND r.late_at IS NOT NULL
    UNION ALL
    SELECT r.id, r.nominal_at, r.missed::text, r.queue, r.priority, r.tenant, r.due_at
    FROM (SELECT * FROM fleetcron.run WHERE schedule = $2 AND nominal_at <= $4 AND priority <= 9 ORDER BY nominal_at DESC LIMIT $5) r
    WHERE r.nominal_at < $3 AND r.state = 'open' AND r.late_at IS NOT NULL)
SELECT t.id, t.nominal_at, t.missed FROM tick t
JOIN fleetcron.ready q ON q.queue = ANY (ARRAY[t.queue]) AND (q.priority, q.tenant, q.due_at, q.run_id) = (t.priority, t.tenant, t.due_at, t.id)
ORDER BY t.nominal_at FOR UPDATE OF q SKIP LOCKED
