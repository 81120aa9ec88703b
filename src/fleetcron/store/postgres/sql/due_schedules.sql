-- Schedules with ticks to write before the horizon, but for those of the queues $4 and those with the ids $5. Index: schedule_due.
SELECT * FROM fleetcron.schedule
WHERE shard = $1 AND next_at IS NOT NULL AND NOT paused AND next_at < $2 AND error IS NULL AND queue <> ALL ($4::text[])
  AND id <> ALL ($5::bigint[]) ORDER BY next_at LIMIT $3
