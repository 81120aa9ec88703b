-- Schedules by name. Index: schedule.name.
SELECT * FROM schedule WHERE name IN (SELECT value FROM json_each(?1))
