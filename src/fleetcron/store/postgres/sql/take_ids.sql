-- Ids for keyed inserts, which must be known before the dedup rows are written.
SELECT nextval(pg_get_serial_sequence('fleetcron.run', 'id')) FROM generate_series(1, $1::int)
