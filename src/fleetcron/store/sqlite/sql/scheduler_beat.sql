-- A scheduler says that it lives until ?3. Index: scheduler's key.
INSERT INTO scheduler (node, shards, expires_at) VALUES (?1, ?2, ?3)
ON CONFLICT (node) DO UPDATE SET shards = excluded.shards, expires_at = excluded.expires_at
