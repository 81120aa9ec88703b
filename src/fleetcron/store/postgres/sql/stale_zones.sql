-- Schedules whose next tick was computed with other zone data.
SELECT * FROM fleetcron.schedule WHERE shard = $1 AND next_at IS NOT NULL AND tzdata <> $2 AND error IS NULL LIMIT $3
