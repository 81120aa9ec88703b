-- A scheduler says that it lives ($5: and can be nominated), opens the shards that it wants and nobody has opened, and learns what its share
-- is computed from: who lives, who leads what, and how long it takes until a term may run out. Index: scheduler_pkey, shard_pkey.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
beat AS (
    INSERT INTO fleetcron.scheduler (node, shards, expires_at, elector)
    SELECT $2, $3, CASE WHEN $5 THEN n.now + $4::interval ELSE n.now END, $6::json FROM n
    ON CONFLICT (node) DO UPDATE SET shards = excluded.shards, expires_at = excluded.expires_at, elector = excluded.elector),
gone AS (
    DELETE FROM fleetcron.scheduler s USING n WHERE s.expires_at < n.now - interval '1 hour' AND s.node <> $2),
opened AS (
    INSERT INTO fleetcron.shard AS s (id)
    SELECT g.id FROM generate_series(0, $3 - 1) AS g (id)
    WHERE $5 AND NOT EXISTS (SELECT 1 FROM fleetcron.shard x WHERE x.id = g.id AND x.active)
    ON CONFLICT (id) DO UPDATE SET active = true RETURNING s.id),
live AS (
    SELECT s.node, s.shards FROM fleetcron.scheduler s, n WHERE s.expires_at > n.now AND s.node <> $2
    UNION ALL SELECT $2, $3 WHERE $5),
known AS (
    SELECT s.id, CASE WHEN s.expires_at >= n.now THEN s.node END AS node, CASE WHEN s.expires_at >= n.now THEN s.expires_at - n.now END AS remains FROM fleetcron.shard s, n WHERE s.active
    UNION SELECT o.id, NULL, NULL FROM opened o)
SELECT ARRAY(SELECT node FROM live ORDER BY node) AS nodes,
       ARRAY(SELECT shards FROM live ORDER BY node) AS wanted,
       ARRAY(SELECT id FROM known ORDER BY id) AS shards,
       ARRAY(SELECT node FROM known ORDER BY id) AS leaders,
       (SELECT extract(epoch FROM min(remains))::float8 FROM known WHERE node IS NOT NULL AND node <> $2) AS remains
