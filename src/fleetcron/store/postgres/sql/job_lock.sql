-- A job that is about to be removed: waits for schedules being written for it, which the next statement then sees. Index: job_name_key.
SELECT id FROM fleetcron.job WHERE name = $1 FOR UPDATE
