-- Take over a shard whose leader's time has run out: the term rises. No row: somebody leads. Index: shard's id.
INSERT INTO shard (id, node, host, pid, term, since, expires_at) VALUES (?2, ?3, ?4, ?5, 1, ?1, ?1 + ?6)
ON CONFLICT (id) DO UPDATE SET node = excluded.node, host = excluded.host, pid = excluded.pid, term = shard.term + 1, since = excluded.since,
    expires_at = excluded.expires_at
    WHERE shard.expires_at < ?1
RETURNING node, term
