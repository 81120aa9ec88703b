-- Fewer shards: those from $1 on are closed. Their rows stay, as terms only rise; their leaders' terms end.
UPDATE fleetcron.shard SET active = false, node = NULL, host = NULL, pid = NULL, expires_at = '-infinity' WHERE id >= $1 AND active RETURNING id
