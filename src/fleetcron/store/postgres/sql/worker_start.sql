-- A new worker session, and its line in the history of sessions.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
w AS (INSERT INTO fleetcron.worker (node, host, pid, queues, jobs, slots, started_at, heartbeat_at, expires_at)
      SELECT $2, $3, $4, $5::text[], $6::int[], $7, n.now, n.now, n.now + $8::interval FROM n RETURNING id, node, host, pid, started_at)
INSERT INTO fleetcron.session (id, node, host, pid, started_at) SELECT id, node, host, pid, started_at FROM w RETURNING id
