-- Who leads what.
SELECT id AS shard, term, since, ticks_until, iif(expires_at > ?1, node, NULL) AS node, iif(expires_at > ?1, host, NULL) AS host,
       iif(expires_at > ?1, pid, NULL) AS pid
FROM shard WHERE active = 1 ORDER BY id
