-- One migration at a time, for the length of its transaction.
SELECT pg_advisory_xact_lock(hashtext('fleetcron.migrate'))
