-- Pause or resume a schedule that this transaction has locked.
UPDATE fleetcron.schedule SET paused = $2, next_at = $3, revision = revision + 1, updated_at = now() WHERE id = $1
