-- A job that a schedule is about to name: held against removal until commit, not against changes. Index: job_name_key.
SELECT id FROM fleetcron.job WHERE name = $1 FOR KEY SHARE
