-- Hold the presence lock of a worker session on this connection: it goes when the process does, and the rescuer sees that.
SELECT pg_advisory_lock(hashtext('fleetcron.worker'), $1::int)
