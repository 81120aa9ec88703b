-- Who holds which lock, until when if it is not renewed, and how many wait for it.
SELECT l.name, l.fence, l.host || ':' || l.pid AS owner, l.acquired_at, l.expires_at,
       (SELECT count(*) FROM lock_waiter w WHERE w.name = l.name AND w.expires_at > ?1) AS waiters
FROM lock l WHERE l.expires_at > ?1 ORDER BY l.name
