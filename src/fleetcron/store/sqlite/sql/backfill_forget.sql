-- Runs of a backfill that are counted. Index: backfill_run's key.
DELETE FROM backfill_run WHERE backfill = ?1 AND run_id IN (SELECT value FROM json_each(?2))
