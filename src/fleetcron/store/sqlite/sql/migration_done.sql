-- Note a migration as applied.
INSERT INTO meta (key, value) VALUES (?1, ?2)
