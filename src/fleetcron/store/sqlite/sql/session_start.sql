-- The line of a worker session in the history of sessions.
INSERT INTO session (id, node, host, pid, started_at) VALUES (?2, ?3, ?4, ?5, ?1)
