-- A node says that it lives (shown by "node list"; nothing hangs on it). Index: node_pkey.
INSERT INTO fleetcron.node (node, host, pid, roles, queues, slots, version, tzdata, started_at, heartbeat_at, expires_at)
SELECT $2, $3, $4, $5, $6, $7, $8, $9, n.now, n.now, n.now + $10::interval FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) n
ON CONFLICT (node) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at
