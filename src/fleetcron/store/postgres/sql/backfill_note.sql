-- Note how far a locked backfill is. Index: backfill_pkey.
UPDATE fleetcron.backfill SET cursor_at = $2, created = $3, existing = $4, walked = $5 WHERE id = $1
