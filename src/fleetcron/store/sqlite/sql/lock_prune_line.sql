-- Forget places in lines that lapsed a while ago (until then their owner may come back to them).
DELETE FROM lock_waiter WHERE expires_at < ?1
