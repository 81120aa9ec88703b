-- A node says that it lives (shown by "node list"; nothing hangs on it). Index: node's key.
INSERT INTO node (node, host, pid, roles, queues, slots, version, tzdata, started_at, heartbeat_at, expires_at)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?1, ?1, ?1 + ?10)
ON CONFLICT (node) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at
