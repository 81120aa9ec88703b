-- The rows that promote.sql copied leave `timetable`. Index: timetable's key.
DELETE FROM timetable WHERE (due_at, run_id) IN (SELECT due_at, run_id FROM timetable WHERE due_at < ?1 ORDER BY due_at, run_id LIMIT ?2)
