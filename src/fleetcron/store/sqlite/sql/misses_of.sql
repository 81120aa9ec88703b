-- Miss records of one schedule, newest first. Index: miss_schedule.
SELECT schedule, first, last, count, reason, policy, decided_at FROM miss WHERE schedule = ?1 ORDER BY id DESC LIMIT ?2
