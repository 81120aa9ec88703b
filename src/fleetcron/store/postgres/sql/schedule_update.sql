-- Edit a schedule that this transaction has locked: a new revision, so that a ticker that read the old one writes nothing.
UPDATE fleetcron.schedule SET job = $2, next_at = $3, prev_at = $4, paused = $5, misfire = $6, overlap = $7, tenant = $8, queue = $9,
    priority = $10, start_deadline = $11, payload = $12::json, spec = $13::json, tzdata = $14, error = NULL, judged_until = NULL,
    revision = revision + 1, updated_at = now()
WHERE id = $1
