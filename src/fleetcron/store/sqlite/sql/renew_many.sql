-- Renew every leadership of a node that is still valid, each named by shard and term ([[shard, term], ...]). What is not among the answers is over.
UPDATE shard SET expires_at = ?1 + ?4
WHERE id IN (SELECT w.value ->> 0 FROM json_each(?3) w) AND node = ?2 AND expires_at >= ?1
      AND term = (SELECT w.value ->> 1 FROM json_each(?3) w WHERE w.value ->> 0 = shard.id)
RETURNING id
