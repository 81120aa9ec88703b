-- Ids for keyed inserts, which must be known before the dedup rows are written.
SELECT nextval('fleetcron.run_id_seq') FROM generate_series(1, $1::int)
