-- The lanes that have something waiting, each with its first due time, at most ?2, by a loose scan: queues, their priorities, their tenants, a
-- few probes of ready's key each, however many rows a lane holds. Tenants are walked side by side (the first of each, then the second …), so
-- that a queue with more tenants than the limit hides no other queue and no other priority. Where ?3 ([[queue, priority, tenant], …], JSON)
-- names a tenant, the walk begins behind it (b.start), and goes on from the first up to it; x'' lies above every name. ?1: only these queues
-- (JSON), or NULL. Index: ready's key.
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
b(queue, priority, start) AS MATERIALIZED (
    SELECT p.queue, p.priority, (SELECT json_extract(value, '$[2]') FROM json_each(?3)
        WHERE json_extract(value, '$[0]') = p.queue AND json_extract(value, '$[1]') = p.priority)
    FROM p WHERE p.priority IS NOT NULL),
t(nth, queue, priority, start, tenant) AS (
    SELECT 1, b.queue, b.priority, b.start, coalesce(
        (SELECT min(r.tenant) FROM ready r WHERE r.queue = b.queue AND r.priority = b.priority AND r.tenant > b.start),
        (SELECT min(r.tenant) FROM ready r WHERE r.queue = b.queue AND r.priority = b.priority))
    FROM b
    UNION ALL
    SELECT t.nth + 1, t.queue, t.priority, t.start, coalesce(
        (SELECT min(r.tenant) FROM ready r WHERE r.queue = t.queue AND r.priority = t.priority AND r.tenant > t.tenant
             AND r.tenant <= iif(t.start IS NULL OR t.tenant > t.start, x'', t.start)),
        iif(t.tenant > t.start,
            (SELECT min(r.tenant) FROM ready r WHERE r.queue = t.queue AND r.priority = t.priority AND r.tenant <= t.start), NULL))
    FROM t WHERE t.tenant IS NOT NULL
    ORDER BY 1),
l AS MATERIALIZED (SELECT t.nth, t.queue, t.priority, t.tenant FROM t WHERE t.tenant IS NOT NULL LIMIT ?2)
SELECT l.queue, l.priority, l.tenant,
       (SELECT min(r.due_at) FROM ready r WHERE r.queue = l.queue AND r.priority = l.priority AND r.tenant = l.tenant)
FROM l ORDER BY l.nth, l.queue, l.priority
