-- Those of these runs that exist are a backfill's. Index: run's id.
INSERT INTO backfill_run (backfill, run_id) SELECT ?1, r.id FROM run r WHERE r.id IN (SELECT value FROM json_each(?2))
