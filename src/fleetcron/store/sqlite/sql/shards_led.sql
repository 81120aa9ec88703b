-- Who leads what, and for how long without a renewal.
SELECT id, iif(expires_at >= ?1, node, NULL), expires_at - ?1 FROM shard WHERE active = 1 ORDER BY id
