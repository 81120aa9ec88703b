-- Schedules with ticks that wait in `ready` although they should have started: for the leader, so that they are judged even while no
-- worker lives. Looks at the first rows of each lane only. Index: ready_pkey, run_pkey.
SELECT DISTINCT r.schedule FROM (SELECT * FROM fleetcron.lane LIMIT 10000) l CROSS JOIN LATERAL (
    SELECT q.run_id FROM fleetcron.ready q
    WHERE q.queue = l.queue AND q.priority = l.priority AND q.tenant = l.tenant AND q.due_at <= coalesce($1::timestamptz, now()) AND q.attempt = 0
    ORDER BY q.due_at, q.run_id LIMIT $2) q
CROSS JOIN LATERAL (SELECT r.schedule, r.late_at FROM fleetcron.run r WHERE r.id = q.run_id LIMIT 1) r
WHERE r.schedule IS NOT NULL AND r.late_at < coalesce($1::timestamptz, now())
