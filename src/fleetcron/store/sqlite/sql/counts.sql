-- Open runs per queue: cheap, because what waits lies in narrow tables. A lease waits for its time only if it was claimed ahead: the clock was
-- read before the table, and one that has just been claimed may have begun later.
SELECT queue, sum(scheduled), sum(ready), sum(running), sum(retrying)
FROM (
    SELECT queue, count(*) FILTER (WHERE attempt = 0 AND due_at > ?1) AS scheduled, count(*) FILTER (WHERE attempt = 0 AND due_at <= ?1) AS ready,
           0 AS running, count(*) FILTER (WHERE attempt > 0) AS retrying FROM ready GROUP BY queue
    UNION ALL
    SELECT queue, count(*) FILTER (WHERE attempt = 0), 0, 0, count(*) FILTER (WHERE attempt > 0) FROM timetable GROUP BY queue
    UNION ALL
    SELECT queue, 0, count(*), 0, 0 FROM parked GROUP BY queue
    UNION ALL
    SELECT r.queue, count(*) FILTER (WHERE l.waits AND l.attempt = 1), 0, count(*) FILTER (WHERE NOT l.waits),
           count(*) FILTER (WHERE l.waits AND l.attempt > 1)
    FROM (SELECT run_id, attempt, ahead AND started_at > ?1 AS waits FROM lease) l JOIN run r ON r.id = l.run_id GROUP BY r.queue)
GROUP BY queue ORDER BY queue
