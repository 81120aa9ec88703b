-- The id of a job. Index: job_name_key.
SELECT id FROM fleetcron.job WHERE name = $1
