-- Renew a lock that is still ours. No row: it is lost. Index: lock's name.
UPDATE lock SET expires_at = ?1 + ?4 WHERE name = ?2 AND owner = ?3 AND expires_at > ?1 RETURNING owner
