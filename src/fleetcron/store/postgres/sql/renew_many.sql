-- Renew every leadership of a node that is still valid, each named by shard and term. What is not among the answers is over. Index: shard_pkey.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
UPDATE fleetcron.shard s SET expires_at = n.now + $5::interval
FROM unnest($3::int[], $4::bigint[]) AS held (id, term), n
WHERE s.id = held.id AND s.term = held.term AND s.node = $2 AND s.expires_at >= n.now RETURNING s.id
