-- Take over up to ?7 of the named shards that nobody leads, in the order of the list: each one's term rises. Index: shard's id.
UPDATE shard SET node = ?3, host = ?4, pid = ?5, term = term + 1, since = ?1, expires_at = ?1 + ?6
WHERE id IN (SELECT s.id FROM json_each(?2) w JOIN shard s ON s.id = w.value WHERE s.expires_at < ?1 ORDER BY w.key LIMIT ?7)
RETURNING id, term
