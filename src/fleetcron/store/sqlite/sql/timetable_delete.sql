-- A run leaves `timetable`, if it waits there with at most ?3 attempts used. Index: timetable's key.
DELETE FROM timetable WHERE due_at = ?1 AND run_id = ?2 AND attempt <= ?3 RETURNING job_id, attempt, flags
