-- Take over a shard that nobody has led yet, or whose leader's time has run out: the term rises. No row: somebody leads. Index: shard_pkey.
INSERT INTO fleetcron.shard AS s (id, node, host, pid, term, since, expires_at)
SELECT $2, $3, $4, $5, 1, n.now, n.now + $6::interval FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) n
ON CONFLICT (id) DO UPDATE SET node = excluded.node, host = excluded.host, pid = excluded.pid, term = s.term + 1, since = excluded.since,
    expires_at = excluded.expires_at
    WHERE s.expires_at < excluded.since
RETURNING term
