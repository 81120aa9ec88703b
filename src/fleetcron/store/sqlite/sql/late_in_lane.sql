-- Schedules with ticks among the first ?5 due rows of a lane that should have started. Index: ready's key, run's id.
SELECT DISTINCT r.schedule
FROM (SELECT run_id FROM ready WHERE queue = ?2 AND priority = ?3 AND tenant = ?4 AND due_at <= ?1 AND attempt = 0 ORDER BY due_at, run_id LIMIT ?5) q
CROSS JOIN run r WHERE r.id = q.run_id AND r.schedule IS NOT NULL AND r.late_at < ?1
