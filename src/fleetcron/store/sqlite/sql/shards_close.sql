-- Fewer shards: those from ?1 on are closed. Their rows stay, as terms only rise; their leaders' terms end.
UPDATE shard SET active = 0, node = NULL, host = NULL, pid = NULL, expires_at = -9000000000000000000 WHERE id >= ?1 AND active = 1 RETURNING id
