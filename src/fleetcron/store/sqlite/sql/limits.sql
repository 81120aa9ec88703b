-- Everything that limits, if it has changed since version ?1: a row for the version alone, one a limiter, one a queue. No row: unchanged.
WITH v AS MATERIALIZED (SELECT value AS version FROM meta WHERE key = 'limits' AND value <> ?1)
SELECT version, NULL AS kind, NULL AS name, NULL AS rate, NULL AS per, NULL AS burst, NULL AS max_running, NULL AS weight, NULL AS paused,
       NULL AS max_depth, NULL AS on_full FROM v
UNION ALL
SELECT version, l.kind, l.name, l.rate, l.per, l.burst, l.max_running, l.weight, l.paused, NULL, NULL FROM v CROSS JOIN limiter l
UNION ALL
SELECT version, 'queue', q.name, NULL, NULL, NULL, NULL, NULL, q.paused, q.max_depth, q.on_full FROM v CROSS JOIN queue q
