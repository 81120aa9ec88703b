-- Is this term in force?
SELECT 1 FROM shard WHERE id = ?2 AND term = ?3 AND expires_at > ?1
