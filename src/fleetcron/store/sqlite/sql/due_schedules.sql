-- Schedules with ticks to write before the horizon, but for those of the queues ?4 and those with the ids ?5. Index: schedule_due.
SELECT * FROM schedule WHERE shard = ?1 AND next_at IS NOT NULL AND paused = 0 AND next_at < ?2 AND error IS NULL
  AND queue NOT IN (SELECT value FROM json_each(?4))
  AND id NOT IN (SELECT value FROM json_each(?5)) ORDER BY next_at LIMIT ?3
