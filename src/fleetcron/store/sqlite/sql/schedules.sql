-- Schedules by name order. Index: schedule.name.
SELECT * FROM schedule WHERE name > ?1 AND (?2 IS NULL OR name = ?2) AND (?3 IS NULL OR job = ?3) ORDER BY name LIMIT ?4
