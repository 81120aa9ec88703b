-- Renew a worker session, whatever it runs: one row. No row: the session has expired or was rescued, and is not renewed.
UPDATE worker SET heartbeat_at = ?1, expires_at = ?1 + ?3 WHERE id = ?2 AND expires_at > ?1 RETURNING id
