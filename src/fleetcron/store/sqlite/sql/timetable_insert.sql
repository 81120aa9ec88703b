-- One run that waits, due later. The parameters are those of ready_insert.sql.
INSERT INTO timetable (queue, priority, tenant, due_at, run_id, job_id, attempt, flags) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
