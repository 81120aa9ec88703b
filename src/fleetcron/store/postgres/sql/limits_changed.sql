-- A limit has changed: workers read them all anew. Index: meta_pkey.
UPDATE fleetcron.meta SET value = (value::bigint + 1)::text WHERE key = 'limits'
