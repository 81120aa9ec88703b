-- Remember a step, if the lease is still held. No row: it is lost. Locks the lease row against a rescue until commit.
WITH mine AS (SELECT 1 FROM fleetcron.lease WHERE worker = $1 AND run_id = $2 AND fence = $3 FOR SHARE)
INSERT INTO fleetcron.step (run_id, name, result) SELECT $2, $4, $5::json FROM mine
ON CONFLICT (run_id, name) DO UPDATE SET result = excluded.result RETURNING run_id
