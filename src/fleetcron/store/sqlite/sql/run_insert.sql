-- A run into the history.
INSERT INTO run (id, created_at, due_at, expires_at, priority, job, queue, tenant, key, gate, payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
