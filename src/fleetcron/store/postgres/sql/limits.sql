-- Everything that limits, if it has changed since version $1: a row for the version alone, one a limiter, one a queue. No row: unchanged,
-- which costs one probe. Index: meta_pkey.
WITH v AS MATERIALIZED (SELECT value::bigint AS version FROM fleetcron.meta WHERE key = 'limits' AND value <> $1::bigint::text)
SELECT version, NULL AS kind, NULL AS name, NULL AS rate, NULL::bigint AS per, NULL::int AS burst, NULL::int AS max_running, NULL::int AS weight,
       NULL::boolean AS paused, NULL::int AS max_depth, NULL AS on_full FROM v
UNION ALL
SELECT version, l.kind, l.name, l.rate, l.per, l.burst, l.max_running, l.weight, l.paused, NULL, NULL FROM v CROSS JOIN fleetcron.limiter l
UNION ALL
SELECT version, 'queue', q.name, NULL, NULL, NULL, NULL, NULL, q.paused, q.max_depth, q.on_full FROM v CROSS JOIN fleetcron.queue q
