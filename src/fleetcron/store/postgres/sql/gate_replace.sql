-- overlap="replace": ask whoever holds the gate to stop, and close the ones that wait for it. Returns the ticks that are
-- missed for it; a run that has had a start and waits for its next attempt is cancelled.
WITH asked AS (UPDATE fleetcron.lease SET cancel = true WHERE gate = $2),
gone AS (DELETE FROM fleetcron.parked WHERE gate = $2 RETURNING run_id)
UPDATE fleetcron.run r SET state = CASE WHEN r.started_at IS NULL THEN 'missed' ELSE 'cancelled' END::fleetcron.run_state, reason = 'overlap: replaced', finished_at = coalesce($1::timestamptz, now())
FROM gone g WHERE r.id = ANY (ARRAY[g.run_id]) RETURNING r.schedule, r.nominal_at, r.state
