-- A run leaves `parked`, if it waits there with at most ?4 attempts used. Index: parked's key.
DELETE FROM parked WHERE gate = ?1 AND due_at = ?2 AND run_id = ?3 AND attempt <= ?4 RETURNING job_id, attempt, flags
