-- Look at the database and write that down: for how long has some scheduler node seen it, once a second, without a gap of 3 s and without a
-- change of server process (a restart and a promotion both begin a new watch)? Index: watch_pkey.
UPDATE fleetcron.watch w SET
    since = CASE WHEN w.seen < n.now - interval '3 seconds' OR w.seen > n.now OR w.server <> n.server THEN n.now ELSE w.since END,
    seen = n.now, server = n.server
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now, pg_postmaster_start_time()::text AS server) n
WHERE w.id = 1 RETURNING extract(epoch FROM w.seen - w.since)::float8
