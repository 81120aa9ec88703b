-- Queues that have limits, or something waiting, with their depth (what is due and waits): for people.
WITH w AS (
    SELECT queue, count(*) AS depth FROM (SELECT queue FROM ready WHERE due_at <= ?1 UNION ALL SELECT queue FROM parked) GROUP BY queue),
n AS (SELECT name FROM queue UNION SELECT queue FROM w)
SELECT n.name, q.max_depth, coalesce(q.on_full, 'reject') AS on_full, coalesce(q.paused, 0) AS paused, coalesce(w.depth, 0) AS depth,
       coalesce(q.refused, 0) AS refused
FROM n LEFT JOIN queue q ON q.name = n.name LEFT JOIN w ON w.queue = n.name ORDER BY n.name
