-- Edit a schedule: a new revision, so that a ticker that read the old one writes nothing.
UPDATE schedule SET job = ?3, next_at = ?4, prev_at = ?5, paused = ?6, misfire = ?7, overlap = ?8, tenant = ?9, queue = ?10, priority = ?11,
    start_deadline = ?12, payload = ?13, spec = ?14, tzdata = ?15, error = NULL, judged_until = NULL, revision = revision + 1, updated_at = ?1
WHERE id = ?2
