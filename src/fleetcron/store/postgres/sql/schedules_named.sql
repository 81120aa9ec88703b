-- Schedules by name. Index: schedule_name_key.
SELECT * FROM fleetcron.schedule WHERE name = ANY ($1::text[])
