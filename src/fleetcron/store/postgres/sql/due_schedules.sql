-- Schedules with ticks to write before the horizon. Index: schedule_due.
SELECT * FROM fleetcron.schedule
WHERE shard = $1 AND next_at IS NOT NULL AND NOT paused AND next_at < $2 AND error IS NULL ORDER BY next_at LIMIT $3
