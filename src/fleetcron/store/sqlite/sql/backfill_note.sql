-- Note how far a backfill is. Index: backfill's id.
UPDATE backfill SET cursor_at = ?2, created = ?3, existing = ?4, walked = ?5 WHERE id = ?1
