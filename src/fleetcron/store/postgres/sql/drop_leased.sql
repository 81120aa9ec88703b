-- Leased ticks judged away before they started: the lease goes, state missed. One that has had a start (replaced while it waited for its
-- next attempt) is cancelled instead. Index: lease_pkey, run_pkey.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
won AS (DELETE FROM fleetcron.lease WHERE worker = $2 AND run_id = ANY ($3::bigint[]) AND fence = ANY ($4::bigint[]) RETURNING run_id)
UPDATE fleetcron.run r SET state = CASE WHEN r.started_at IS NULL THEN 'missed' ELSE 'cancelled' END::fleetcron.run_state, reason = $5, finished_at = n.now FROM won w, n WHERE r.id = ANY (ARRAY[w.run_id]) RETURNING r.id
