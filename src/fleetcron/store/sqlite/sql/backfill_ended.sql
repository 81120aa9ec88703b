-- A backfill's runs that have ended, with their states. A run that is gone was pruned, and so had ended. Index: backfill_run's key, run's id.
SELECT o.run_id, coalesce(r.state, 'succeeded') AS state FROM backfill_run o LEFT JOIN run r ON r.id = o.run_id
WHERE o.backfill = ?1 AND coalesce(r.state, 'succeeded') <> 'open'
