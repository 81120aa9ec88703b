-- Leave the line before a lock. Index: lock_waiter's owner.
DELETE FROM lock_waiter WHERE owner = ?1
