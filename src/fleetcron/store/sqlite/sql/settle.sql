-- Record an attempt that ended in any other way than success: open again (due ?6, or unchanged if NULL) or closed. What is put back
-- unstarted (?10 NULL) can still be late, or expire. ?12: a hand-back by shutdown, which costs no attempt, up to ten times, so that a crash loop ends.
-- Index: run's id.
UPDATE run SET state = ?4, attempt = ?5 + (?12 AND handbacks >= 10), due_at = coalesce(?6, due_at), error = coalesce(?7, error),
    reason = ?8, result = ?9, started_at = coalesce(?10, started_at), worker = ?2, fence = ?11, finished_at = iif(?4 = 'open', NULL, ?1),
    late_at = iif(?10 IS NULL, late_at, NULL), expires_at = iif(?10 IS NULL, expires_at, NULL),
    handbacks = handbacks + ?12
WHERE id = ?3
