-- Miss records, newest first. Index: miss_schedule when a schedule is named.
SELECT schedule, first, last, count, reason, policy, decided_at FROM fleetcron.miss
WHERE ($1::text IS NULL OR schedule = $1) ORDER BY id DESC LIMIT $2
