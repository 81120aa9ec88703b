-- Schedules with ticks that wait in `ready` although they should have started: for the leader, so that they are judged even while no
-- worker lives. Looks at the first rows of each lane only. Index: ready_pkey (loose scan), run_pkey.
WITH RECURSIVE lane AS (
    (SELECT queue, priority, tenant FROM fleetcron.ready ORDER BY queue, priority, tenant LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority, n.tenant FROM lane l CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.tenant FROM fleetcron.ready q WHERE (q.queue, q.priority, q.tenant) > (l.queue, l.priority, l.tenant)
        ORDER BY q.queue, q.priority, q.tenant LIMIT 1) n)
SELECT DISTINCT r.schedule FROM (SELECT * FROM lane LIMIT 1000) l CROSS JOIN LATERAL (
    SELECT q.run_id FROM fleetcron.ready q
    WHERE q.queue = l.queue AND q.priority = l.priority AND q.tenant = l.tenant AND q.due_at <= coalesce($1::timestamptz, now()) AND q.attempt = 0
    ORDER BY q.due_at, q.run_id LIMIT $2) q
JOIN fleetcron.run r ON r.id = q.run_id WHERE r.schedule IS NOT NULL AND r.late_at < coalesce($1::timestamptz, now())
