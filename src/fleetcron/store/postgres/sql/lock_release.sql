-- Give a lock back if it is still ours, leave its line if we stand there, and wake whoever is next. Answers whether it was ours until now.
-- Indexes: lock_pkey, lock_waiter_owner_key, lock_waiter_pkey.
-- A row that a transaction has asked fence_ok for cannot be deleted before that ends, but it can expire: it is left for lock_take and lock_prune.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
free AS MATERIALIZED (SELECT l.name FROM fleetcron.lock l WHERE l.name = $2 AND l.owner = $3 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM fleetcron.lock l USING free WHERE l.name = free.name RETURNING l.expires_at),
left_behind AS (
    UPDATE fleetcron.lock l SET expires_at = '-infinity' FROM n
    WHERE l.name = $2 AND l.owner = $3 AND l.expires_at > n.now AND NOT EXISTS (SELECT FROM free) RETURNING l.name),
place AS (DELETE FROM fleetcron.lock_waiter w WHERE w.owner = $3),
next AS (
    SELECT w.owner FROM fleetcron.lock_waiter w, n WHERE w.name = $2 AND w.owner <> $3 AND w.expires_at > n.now
        AND NOT EXISTS (SELECT FROM fleetcron.lock l WHERE l.name = $2 AND l.owner <> $3 AND l.expires_at > n.now)
    ORDER BY w.id LIMIT 1)
SELECT EXISTS (SELECT FROM gone, n WHERE gone.expires_at > n.now) OR EXISTS (SELECT FROM left_behind),
       (SELECT pg_notify('fleetcron.lock', next.owner) FROM next)
