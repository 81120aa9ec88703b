-- Put a backfill into a state; done and cancelled are the end. Index: backfill's id.
UPDATE backfill SET state = ?3, reason = ?4, finished_at = iif(?3 IN ('done', 'cancelled'), ?1, NULL) WHERE id = ?2
