-- A run that used up its attempts. Index: run's id.
INSERT INTO dead_letter (run_id, job, schedule, tenant, attempts, error, died_at)
SELECT id, job, schedule, tenant, ?3, ?4, ?1 FROM run WHERE id = ?2
ON CONFLICT (run_id) DO NOTHING
