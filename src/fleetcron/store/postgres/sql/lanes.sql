-- The lanes that have something waiting, each with its first due time, by a loose scan: one probe of ready_pkey a lane, however many
-- rows it holds. Ordered by queue, priority, tenant.
WITH RECURSIVE lane AS (
    (SELECT queue, priority, tenant, due_at FROM fleetcron.ready ORDER BY queue, priority, tenant, due_at LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority, n.tenant, n.due_at FROM lane l CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.tenant, q.due_at FROM fleetcron.ready q
        WHERE (q.queue, q.priority, q.tenant) > (l.queue, l.priority, l.tenant)
        ORDER BY q.queue, q.priority, q.tenant, q.due_at LIMIT 1) n)
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now, l.queue, l.priority, l.tenant, l.due_at
FROM (SELECT * FROM lane LIMIT $3) l WHERE $2::text[] IS NULL OR l.queue = ANY ($2)
