-- Schedules with ticks to write before the horizon, but for those of the queues ?4. Index: schedule_due.
SELECT * FROM schedule WHERE shard = ?1 AND next_at IS NOT NULL AND paused = 0 AND next_at < ?2 AND error IS NULL
  AND queue NOT IN (SELECT value FROM json_each(?4)) ORDER BY next_at LIMIT ?3
