-- Ticks judged away or withdrawn: state missed.
UPDATE run SET state = 'missed', reason = ?3, finished_at = ?1 WHERE id IN (SELECT value FROM json_each(?2))
