-- The unstarted ticks of a schedule that this transaction has locked and that wait in `ready`, due up to now; each is locked, those being
-- claimed right now are passed over (their claimers judge them). Those without late_at cannot be misfires: they have started once, or
-- waited for their gate, or are of a one-shot. $3: nothing older can be waiting (first_due.sql minus jitter).
-- Index: run_tick, ready_pkey.
SELECT r.id, r.nominal_at, r.missed::text AS missed FROM fleetcron.run r
JOIN fleetcron.ready q ON (q.queue, q.priority, q.tenant, q.due_at, q.run_id) = (r.queue, r.priority, r.tenant, r.due_at, r.id)
WHERE r.schedule = $2 AND r.nominal_at >= $3 AND r.nominal_at <= coalesce($1::timestamptz, now()) AND r.state = 'open' AND r.late_at IS NOT NULL
ORDER BY r.nominal_at FOR UPDATE OF q SKIP LOCKED
