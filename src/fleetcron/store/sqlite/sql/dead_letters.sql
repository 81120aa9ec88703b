-- Dead letters, newest first. Index: dead_letter's key, backwards.
SELECT run_id, job, schedule, tenant, attempts, error, died_at FROM dead_letter WHERE run_id < ?1 ORDER BY run_id DESC LIMIT ?2
