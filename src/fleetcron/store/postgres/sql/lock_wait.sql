-- Join the line before a lock, or say that we still wait; the place lapses after $4. Index: lock_waiter_owner_key.
INSERT INTO fleetcron.lock_waiter (name, owner, expires_at) SELECT $2, $3, coalesce($1::timestamptz, clock_timestamp()) + $4::interval
ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at
