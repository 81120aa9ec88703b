-- overlap="replace": ask whoever holds the gate to stop, and close the ones that wait for it. Returns the ticks closed.
WITH asked AS (UPDATE fleetcron.lease SET cancel = true WHERE gate = $2),
gone AS (DELETE FROM fleetcron.parked WHERE gate = $2 RETURNING run_id)
UPDATE fleetcron.run r SET state = 'missed', reason = 'overlap: replaced', finished_at = coalesce($1::timestamptz, now())
FROM gone g WHERE r.id = g.run_id RETURNING r.id, r.schedule, r.nominal_at
