-- A backfill's runs that have not ended, or are not counted yet. Index: backfill_run's key.
SELECT run_id FROM backfill_run WHERE backfill = ?1 ORDER BY run_id
