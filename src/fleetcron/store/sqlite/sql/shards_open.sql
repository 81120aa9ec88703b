-- Open the shards from 0 to ?1 - 1 that nobody has opened.
WITH RECURSIVE wanted (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM wanted WHERE id < ?1 - 1)
INSERT INTO shard (id) SELECT w.id FROM wanted w WHERE NOT EXISTS (SELECT 1 FROM shard s WHERE s.id = w.id AND s.active = 1)
ON CONFLICT (id) DO UPDATE SET active = 1
