-- The lanes that have something waiting, each with its first due time, by a loose scan: queues, their priorities, their tenants, a few
-- probes of ready's key each, however many rows a lane holds. Tenants are walked side by side (the first of each, then the second …), so
-- that a queue with more tenants than the limit hides no other queue and no other priority. Ordered by queue, priority, tenant.
-- ?1: only these queues (JSON), or NULL.
WITH RECURSIVE
q(queue) AS (
    SELECT min(queue) FROM ready
    UNION ALL
    SELECT (SELECT min(r.queue) FROM ready r WHERE r.queue > q.queue) FROM q WHERE q.queue IS NOT NULL),
p(queue, priority) AS (
    SELECT q.queue, (SELECT min(r.priority) FROM ready r WHERE r.queue = q.queue) FROM q
    WHERE q.queue IS NOT NULL AND (?1 IS NULL OR q.queue IN (SELECT value FROM json_each(?1)))
    UNION ALL
    SELECT p.queue, (SELECT min(r.priority) FROM ready r WHERE r.queue = p.queue AND r.priority > p.priority) FROM p
    WHERE p.priority IS NOT NULL),
t(nth, queue, priority, tenant) AS (
    SELECT 1, p.queue, p.priority, (SELECT min(r.tenant) FROM ready r WHERE r.queue = p.queue AND r.priority = p.priority) FROM p
    WHERE p.priority IS NOT NULL
    UNION ALL
    SELECT t.nth + 1, t.queue, t.priority,
           (SELECT min(r.tenant) FROM ready r WHERE r.queue = t.queue AND r.priority = t.priority AND r.tenant > t.tenant)
    FROM t WHERE t.tenant IS NOT NULL
    ORDER BY 1),
l AS MATERIALIZED (SELECT t.queue, t.priority, t.tenant FROM t WHERE t.tenant IS NOT NULL LIMIT ?2)
SELECT l.queue, l.priority, l.tenant,
       (SELECT min(r.due_at) FROM ready r WHERE r.queue = l.queue AND r.priority = l.priority AND r.tenant = l.tenant)
FROM l ORDER BY l.queue, l.priority, l.tenant
