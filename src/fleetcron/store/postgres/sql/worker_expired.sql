-- Is any worker session past its time? Asked before `worker_lock`, so that a fleet in order costs a read and no transaction. The table is small.
SELECT EXISTS (SELECT 1 FROM fleetcron.worker w WHERE w.expires_at < coalesce($1::timestamptz, clock_timestamp()))
