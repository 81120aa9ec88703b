-- The first due time waiting in a lane, or in the timetable (which lies in the past only when nobody promotes): the lower bound of what can
-- be unstarted. Index: ready_pkey, timetable_pkey.
SELECT least((SELECT due_at FROM fleetcron.ready WHERE queue = $1 AND priority = $2 AND tenant = $3 ORDER BY due_at LIMIT 1),
             (SELECT due_at FROM fleetcron.timetable ORDER BY due_at LIMIT 1))
