-- How long somebody else still holds a lock, and whether nobody waits for it before us. Indexes: lock's name, lock_line, lock_waiter's owner.
SELECT (SELECT l.expires_at - ?1 FROM lock l WHERE l.name = ?2 AND l.owner <> ?3 AND l.expires_at > ?1),
       NOT EXISTS (SELECT 1 FROM lock_waiter w WHERE w.name = ?2 AND w.owner <> ?3 AND w.expires_at > ?1
                   AND w.id < coalesce((SELECT own.id FROM lock_waiter own WHERE own.owner = ?3), 9223372036854775807))
