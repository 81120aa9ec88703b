-- The first due time waiting in a lane, or in the timetable (which lies in the past only when nobody promotes): the lower bound of what can
-- be unstarted. Index: ready_pkey, timetable_pkey.
SELECT least((SELECT min(due_at) FROM fleetcron.ready WHERE queue = $1 AND priority = $2 AND tenant = $3),
             (SELECT min(due_at) FROM fleetcron.timetable))
