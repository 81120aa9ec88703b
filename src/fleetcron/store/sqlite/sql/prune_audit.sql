-- Old audit lines.
DELETE FROM audit WHERE at < ?1
