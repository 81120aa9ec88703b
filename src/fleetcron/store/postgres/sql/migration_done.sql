-- Note a migration as applied.
INSERT INTO fleetcron.meta (key, value) VALUES ($1, $2::timestamptz::text)
