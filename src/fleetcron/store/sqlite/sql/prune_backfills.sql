-- Old backfills.
DELETE FROM backfill WHERE finished_at < ?1 AND NOT EXISTS (SELECT 1 FROM backfill_run o WHERE o.backfill = backfill.id)
