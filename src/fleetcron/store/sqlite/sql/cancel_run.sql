-- A waiting run ends now.
UPDATE run SET state = 'cancelled', reason = 'cancelled while waiting', finished_at = ?1 WHERE id = ?2
