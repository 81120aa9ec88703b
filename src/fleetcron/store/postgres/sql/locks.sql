-- Who holds which lock, until when if it is not renewed, and how many wait for it.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT l.name, l.fence, l.host || ':' || l.pid AS owner, l.acquired_at, l.expires_at,
       (SELECT count(*) FROM fleetcron.lock_waiter w WHERE w.name = l.name AND w.expires_at > n.now) AS waiters
FROM fleetcron.lock l, n WHERE l.expires_at > n.now ORDER BY l.name
