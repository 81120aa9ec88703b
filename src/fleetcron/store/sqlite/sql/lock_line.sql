-- Does somebody wait for a lock? Index: lock_line.
SELECT 1 FROM lock_waiter WHERE name = ?2 AND expires_at > ?1 LIMIT 1
