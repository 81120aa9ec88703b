-- Who leads what.
SELECT id AS shard, term, since, ticks_until,
       CASE WHEN expires_at > coalesce($1::timestamptz, now()) THEN node END AS node,
       CASE WHEN expires_at > coalesce($1::timestamptz, now()) THEN host END AS host,
       CASE WHEN expires_at > coalesce($1::timestamptz, now()) THEN pid END AS pid
FROM fleetcron.shard WHERE active ORDER BY id
