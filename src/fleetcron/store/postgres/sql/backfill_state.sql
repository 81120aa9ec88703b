-- Put a locked backfill into a state; done and cancelled are the end. Index: backfill_pkey.
UPDATE fleetcron.backfill SET state = $3, reason = $4,
    finished_at = CASE WHEN $3 IN ('done', 'cancelled') THEN coalesce($1::timestamptz, now()) END
WHERE id = $2
