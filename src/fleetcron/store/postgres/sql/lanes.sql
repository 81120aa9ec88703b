-- The lanes that have something waiting, each with its first due time, by a loose scan: one probe of ready_pkey a lane, however many
-- rows it holds. First the (queue, priority) pairs, then their tenants side by side, so that a queue with more tenants than the limit
-- hides no other queue and no other priority. Ordered by queue, priority, tenant.
WITH RECURSIVE head AS (
    (SELECT queue, priority FROM fleetcron.ready ORDER BY queue, priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority FROM head h CROSS JOIN LATERAL (
        SELECT q.queue, q.priority FROM fleetcron.ready q
        WHERE (q.queue, q.priority) > (h.queue, h.priority) ORDER BY q.queue, q.priority LIMIT 1) n),
lane AS (
    SELECT n.queue, n.priority, n.tenant, n.due_at FROM head h CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.tenant, q.due_at FROM fleetcron.ready q
        WHERE q.queue = h.queue AND q.priority = h.priority ORDER BY q.tenant, q.due_at LIMIT 1) n
    WHERE $2::text[] IS NULL OR h.queue = ANY ($2)
    UNION ALL
    SELECT n.queue, n.priority, n.tenant, n.due_at FROM lane l CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.tenant, q.due_at FROM fleetcron.ready q
        WHERE q.queue = l.queue AND q.priority = l.priority AND q.tenant > l.tenant ORDER BY q.tenant, q.due_at LIMIT 1) n)
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now, l.queue, l.priority, l.tenant, l.due_at
FROM (SELECT * FROM lane LIMIT $3) l ORDER BY l.queue, l.priority, l.tenant
