-- Queues that have limits, or something waiting, with their depth (what is due and waits): for people.
SELECT coalesce(q.name, d.queue) AS name, q.max_depth, coalesce(q.on_full, 'reject') AS on_full, coalesce(q.paused, false) AS paused,
       coalesce(d.depth, 0) AS depth, coalesce(q.refused, 0) AS refused
FROM fleetcron.queue q FULL JOIN (
    SELECT queue, count(*) AS depth FROM (
        SELECT queue FROM fleetcron.ready WHERE due_at <= coalesce($1::timestamptz, now())
        UNION ALL SELECT queue FROM fleetcron.parked) w GROUP BY queue) d ON d.queue = q.name
ORDER BY 1
