-- Schedules by name order. Index: schedule_name_key.
SELECT * FROM fleetcron.schedule
WHERE name > $1 AND ($2::text IS NULL OR name = $2) AND ($3::text IS NULL OR job = $3)
ORDER BY name LIMIT $4
