-- Renew a worker session, whatever it runs: one row. No row: it was rescued, or has ended. One past its time that nobody has rescued is renewed,
-- for its runs are still its own: the rescue takes the lock of the same row, so one of the two comes first, and worker_lock.sql looks at the time
-- again after the wait. So nothing is run again when the database was away for longer than a lease. The reply carries the runs that were asked
-- to stop. Index: worker_pkey, lease_pkey.
WITH w AS (UPDATE fleetcron.worker SET heartbeat_at = coalesce($1::timestamptz, clock_timestamp()),
               expires_at = coalesce($1::timestamptz, clock_timestamp()) + $3::interval
           WHERE id = $2 RETURNING heartbeat_at)
SELECT heartbeat_at AS now, ARRAY(SELECT run_id FROM fleetcron.lease WHERE worker = $2 AND cancel) AS cancels FROM w
