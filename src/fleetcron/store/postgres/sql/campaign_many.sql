-- Take over up to $7 of the named shards that nobody leads, in the order of the list: each one's term rises. A row that somebody else has
-- locked is his, or is asked for again in a moment. Index: shard_pkey.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
free AS MATERIALIZED (
    SELECT s.id FROM fleetcron.shard s, n WHERE s.id = ANY ($2::int[]) AND s.expires_at < n.now
    ORDER BY array_position($2::int[], s.id) LIMIT $7 FOR UPDATE OF s SKIP LOCKED)
UPDATE fleetcron.shard s SET node = $3, host = $4, pid = $5, term = s.term + 1, since = n.now, expires_at = n.now + $6::interval
FROM free, n WHERE s.id = free.id RETURNING s.id, s.term
