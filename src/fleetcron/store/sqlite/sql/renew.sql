-- Renew a leadership that is still valid, named by node and term. No row: it is over.
UPDATE shard SET expires_at = ?1 + ?5 WHERE id = ?2 AND node = ?3 AND term = ?4 AND expires_at >= ?1 RETURNING term
