-- Schedules that could not be evaluated, to be tried again.
SELECT * FROM fleetcron.schedule WHERE shard = $1 AND error IS NOT NULL AND NOT paused ORDER BY name LIMIT $2
