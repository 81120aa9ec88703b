-- The schedulers that live and can be nominated.
SELECT node, shards FROM scheduler WHERE expires_at > ?1 ORDER BY node
