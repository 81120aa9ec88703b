-- Miss records, newest first.
SELECT schedule, first, last, count, reason, policy, decided_at FROM miss ORDER BY id DESC LIMIT ?1
