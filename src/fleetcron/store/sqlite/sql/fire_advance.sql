-- Advance a schedule, if next_at and revision are what the ticker read. Index: schedule's id.
UPDATE schedule SET next_at = ?4, prev_at = ?5, tzdata = ?6 WHERE id = ?1 AND revision = ?2 AND next_at = ?3 AND paused = 0 RETURNING id
