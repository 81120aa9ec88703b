-- Which of these runs have ended (or no longer exist). Index: run_pkey.
SELECT i.id FROM unnest($1::bigint[]) i(id) LEFT JOIN fleetcron.run r ON r.id = ANY (ARRAY[i.id]) WHERE r.id IS NULL OR r.state <> 'open'
