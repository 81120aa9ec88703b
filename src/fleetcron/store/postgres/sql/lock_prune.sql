-- Forget locks that have expired, and places in lines that lapsed half a minute ago (until then their owner may come back to them). A lock
-- that a transaction still holds on to by fence_ok waits for the next time.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
old AS MATERIALIZED (SELECT l.name FROM fleetcron.lock l, n WHERE l.expires_at <= n.now FOR UPDATE OF l SKIP LOCKED),
lapsed AS (DELETE FROM fleetcron.lock_waiter w USING n WHERE w.expires_at < n.now - interval '30 seconds')
DELETE FROM fleetcron.lock l USING old WHERE l.name = old.name
