-- Take a lock that is free, has expired, or is ours already (an answer was lost), unless somebody waits before us. Answers the fence, or else
-- how many seconds the holder has left; and whether we are first. Indexes: lock_pkey, lock_waiter_pkey, lock_waiter_owner_key.
-- A fence is drawn while this transaction has the name's mutex, and so rises above all that were given before; drawn earlier, it could come
-- to light after a higher one. Nothing here waits for anybody: one statement, of a client that may be frozen the moment it was sent.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
held AS (SELECT l.expires_at - n.now AS remains FROM fleetcron.lock l, n WHERE l.name = $2 AND l.owner <> $3 AND l.expires_at > n.now),
ahead AS (
    SELECT w.id FROM fleetcron.lock_waiter w, n WHERE w.name = $2 AND w.owner <> $3 AND w.expires_at > n.now
        AND w.id < coalesce((SELECT own.id FROM fleetcron.lock_waiter own WHERE own.owner = $3), 9223372036854775807) LIMIT 1),
mutex AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtextextended('fleetcron.lock:' || $2, 0)) AS ours
    WHERE NOT EXISTS (SELECT FROM held) AND NOT EXISTS (SELECT FROM ahead)),
old AS MATERIALIZED (
    SELECT l.name FROM fleetcron.lock l, mutex, n
    WHERE mutex.ours AND l.name = $2 AND (l.expires_at <= n.now OR l.owner = $3) FOR UPDATE OF l SKIP LOCKED),
taken AS (
    UPDATE fleetcron.lock l SET owner = $3, host = $4, pid = $5, fence = nextval('fleetcron.fence'), acquired_at = n.now,
        expires_at = n.now + $6::interval
    FROM old, n WHERE l.name = old.name RETURNING l.fence),
made AS (
    INSERT INTO fleetcron.lock (name, owner, host, pid, fence, acquired_at, expires_at)
    SELECT $2, $3, $4, $5, nextval('fleetcron.fence'), n.now, n.now + $6::interval FROM mutex, n
    WHERE mutex.ours AND NOT EXISTS (SELECT FROM fleetcron.lock l WHERE l.name = $2)
    ON CONFLICT (name) DO NOTHING RETURNING fence),
won AS (SELECT fence FROM taken UNION ALL SELECT fence FROM made),
served AS (DELETE FROM fleetcron.lock_waiter w WHERE w.owner = $3 AND EXISTS (SELECT FROM won))
SELECT (SELECT fence FROM won), (SELECT extract(epoch FROM remains)::float8 FROM held), NOT EXISTS (SELECT FROM ahead)
