-- Forget locks that have expired.
DELETE FROM lock WHERE expires_at <= ?1
