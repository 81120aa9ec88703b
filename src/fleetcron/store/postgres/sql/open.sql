-- Which migrations this database has, or NULL where there is no schema yet. Read before anything else: must not fail on an empty database.
SELECT to_regclass('fleetcron.meta') IS NOT NULL AS present,
       pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean AS read_only
