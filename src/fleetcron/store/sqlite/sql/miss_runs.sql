-- Ticks judged away or withdrawn: state missed. One that has had a start (replaced while it waited for its next attempt) is cancelled.
UPDATE run SET state = CASE WHEN started_at IS NULL THEN 'missed' ELSE 'cancelled' END, reason = ?3, finished_at = ?1 WHERE id IN (SELECT value FROM json_each(?2))
