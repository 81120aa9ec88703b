-- Dead letters, newest first. Index: dead_letter_pkey backwards, or dead_letter_job.
SELECT run_id, job, schedule, tenant, attempts, error, died_at FROM fleetcron.dead_letter
WHERE ($1::text IS NULL OR job = $1) AND ($2::bigint IS NULL OR run_id < $2) ORDER BY run_id DESC LIMIT $3
