-- Set the next tick of a schedule, and the zone data it was computed with.
UPDATE schedule SET next_at = ?2, tzdata = ?3, revision = revision + 1 WHERE id = ?1
