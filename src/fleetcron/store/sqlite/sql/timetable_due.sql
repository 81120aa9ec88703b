-- Does anything come due before ?1 that still waits to be promoted? Index: timetable's key.
SELECT EXISTS (SELECT 1 FROM timetable WHERE due_at < ?1)
