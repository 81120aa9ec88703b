-- Old miss records.
DELETE FROM miss WHERE decided_at < ?1
