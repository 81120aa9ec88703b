-- Schedules that could not be evaluated, to be tried again.
SELECT * FROM schedule WHERE shard = ?1 AND error IS NOT NULL AND paused = 0 ORDER BY name LIMIT ?2
