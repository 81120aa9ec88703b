-- A run leaves `ready`, if it waits there with at most ?6 attempts used. Index: ready's key.
DELETE FROM ready WHERE queue = ?1 AND priority = ?2 AND tenant = ?3 AND due_at = ?4 AND run_id = ?5 AND attempt <= ?6
RETURNING job_id, attempt, flags
