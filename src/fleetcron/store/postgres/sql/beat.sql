-- Renew a worker session, whatever it runs: one row. No row: the session has expired or was rescued, and is not renewed.
-- The reply carries the runs that were asked to stop. Index: worker_pkey, lease_pkey.
WITH w AS (UPDATE fleetcron.worker SET heartbeat_at = coalesce($1::timestamptz, clock_timestamp()),
               expires_at = coalesce($1::timestamptz, clock_timestamp()) + $3::interval
           WHERE id = $2 AND expires_at > coalesce($1::timestamptz, clock_timestamp()) RETURNING heartbeat_at)
SELECT heartbeat_at AS now, ARRAY(SELECT run_id FROM fleetcron.lease WHERE worker = $2 AND cancel) AS cancels FROM w
