-- The first due time waiting in a lane, or in the timetable (which lies in the past only when nobody promotes): the lower bound of what can
-- be unstarted. Index: the keys of ready and timetable.
SELECT min(due_at) FROM (
    SELECT min(due_at) AS due_at FROM ready WHERE queue = ?1 AND priority = ?2 AND tenant = ?3
    UNION ALL SELECT min(due_at) FROM timetable)
