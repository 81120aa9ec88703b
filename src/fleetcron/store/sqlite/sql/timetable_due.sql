-- Is a bucket overdue that nobody promoted? Index: timetable's key.
SELECT EXISTS (SELECT 1 FROM timetable WHERE due_at <= ?1)
