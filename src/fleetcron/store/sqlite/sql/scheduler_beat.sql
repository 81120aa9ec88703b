-- A scheduler says that it lives until ?3, and what it knows of its elector. Index: scheduler's key.
INSERT INTO scheduler (node, shards, expires_at, elector) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (node) DO UPDATE SET shards = excluded.shards, expires_at = excluded.expires_at, elector = excluded.elector
