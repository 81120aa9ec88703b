-- Live and dead rows and the size of each of our tables ($1: the schema), as the statistics have them, the most dead rows first.
-- Index: none, a small catalogue.
SELECT relname::text AS name, n_live_tup AS live, n_dead_tup AS dead, pg_total_relation_size(relid) AS bytes
FROM pg_stat_user_tables WHERE schemaname = $1 ORDER BY n_dead_tup DESC, relname
