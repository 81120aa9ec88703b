-- Pause or resume a schedule.
UPDATE schedule SET paused = ?3, next_at = ?4, revision = revision + 1, updated_at = ?1 WHERE id = ?2
