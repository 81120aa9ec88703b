-- Old worker sessions.
DELETE FROM session WHERE ended_at < ?1
