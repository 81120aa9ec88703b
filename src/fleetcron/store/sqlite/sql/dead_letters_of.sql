-- Dead letters of one job, newest first. Index: dead_letter_job.
SELECT run_id, job, schedule, tenant, attempts, error, died_at FROM dead_letter WHERE job = ?1 AND run_id < ?2 ORDER BY run_id DESC LIMIT ?3
