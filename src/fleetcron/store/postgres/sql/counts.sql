-- Open runs per queue: cheap, because what waits lies in narrow tables. A lease waits for its time only if it was claimed ahead: the time is
-- that of the statement's beginning, and one that has just been claimed may have begun later.
SELECT queue, sum(scheduled)::bigint AS scheduled, sum(ready)::bigint AS ready, sum(running)::bigint AS running, sum(retrying)::bigint AS retrying
FROM (
    SELECT queue, count(*) FILTER (WHERE attempt = 0 AND due_at > coalesce($1::timestamptz, now())) AS scheduled,
           count(*) FILTER (WHERE attempt = 0 AND due_at <= coalesce($1::timestamptz, now())) AS ready, 0 AS running,
           count(*) FILTER (WHERE attempt > 0) AS retrying FROM fleetcron.ready GROUP BY queue
    UNION ALL
    SELECT queue, count(*) FILTER (WHERE attempt = 0), 0, 0, count(*) FILTER (WHERE attempt > 0) FROM fleetcron.timetable GROUP BY queue
    UNION ALL
    SELECT queue, 0, count(*), 0, 0 FROM fleetcron.parked GROUP BY queue
    UNION ALL
    SELECT r.queue, count(*) FILTER (WHERE l.waits AND l.attempt = 1), 0, count(*) FILTER (WHERE NOT l.waits),
           count(*) FILTER (WHERE l.waits AND l.attempt > 1)
    FROM (SELECT run_id, attempt, ahead AND started_at > coalesce($1::timestamptz, now()) AS waits FROM fleetcron.lease) l
    JOIN fleetcron.run r ON r.id = l.run_id GROUP BY r.queue) c
GROUP BY queue ORDER BY queue
