-- Schedules with ticks that wait in `ready` although they should have started: for the leader, so that they are judged even while no
-- worker lives. Of the due rows that are judged if they do not start in time (flag 8), oldest first, those after ($2 due, $3 id), at most $4:
-- for all other runs, and for lanes, it costs nothing. What is judged and kept stays where it is, so a caller goes on from the last row
-- looked at, which is told if there may be more. Index: ready_tick, run_pkey.
WITH looked AS MATERIALIZED (
    SELECT q.due_at, q.run_id FROM fleetcron.ready q
    WHERE q.flags & 8 <> 0 AND (q.due_at, q.run_id) > (coalesce($2::timestamptz, '-infinity'), coalesce($3::bigint, 0))
      AND q.due_at <= coalesce($1::timestamptz, now())
    ORDER BY q.due_at, q.run_id LIMIT $4)
SELECT ARRAY(SELECT DISTINCT r.schedule FROM looked l JOIN fleetcron.run r ON r.id = ANY (ARRAY[l.run_id])
             WHERE r.late_at < coalesce($1::timestamptz, now()) ORDER BY r.schedule) AS schedules,
       e.due_at, e.run_id
FROM (SELECT 1) always LEFT JOIN (SELECT due_at, run_id FROM looked ORDER BY due_at, run_id OFFSET $4 - 1) e ON true
