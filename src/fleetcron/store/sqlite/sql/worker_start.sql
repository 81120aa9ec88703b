-- A new worker session.
INSERT INTO worker (id, node, host, pid, pid_started, queues, jobs, slots, started_at, heartbeat_at, expires_at)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?1, ?1, ?1 + ?10)
