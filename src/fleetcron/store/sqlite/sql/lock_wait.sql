-- Join the line before a lock, or say that we still wait; the place lapses after ?4. Index: lock_waiter's owner.
INSERT INTO lock_waiter (name, owner, expires_at) VALUES (?2, ?3, ?1 + ?4)
ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at
