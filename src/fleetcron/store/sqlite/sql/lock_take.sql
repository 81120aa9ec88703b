-- Take a lock that was looked at in this transaction, and that nobody else holds. Index: lock's name.
INSERT INTO lock (name, owner, host, pid, fence, acquired_at, expires_at) VALUES (?2, ?3, ?4, ?5, ?6, ?1, ?1 + ?7)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, host = excluded.host, pid = excluded.pid, fence = excluded.fence,
    acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
