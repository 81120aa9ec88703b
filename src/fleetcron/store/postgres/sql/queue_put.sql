-- Set a queue's limits. Index: queue_pkey.
INSERT INTO fleetcron.queue (name, max_depth, on_full, paused) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET max_depth = excluded.max_depth, on_full = excluded.on_full, paused = excluded.paused
