-- Is this term in force? FOR SHARE: a takeover waits for this transaction, and one already under way makes it find nothing.
SELECT 1 FROM fleetcron.shard WHERE id = $2 AND term = $3 AND expires_at > coalesce($1::timestamptz, clock_timestamp()) FOR SHARE
