-- The oldest snapshot that keeps dead rows of this database from being removed, and who holds it; no row when there is none but ours.
-- Index: none, these are views of the server's memory.
SELECT holder, age FROM (
    SELECT format('pid %s (%s, %s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename::text, a.backend_type), a.state) AS holder,
           clock_timestamp() - coalesce(a.xact_start, a.query_start) AS age
    FROM pg_stat_activity a WHERE a.backend_xmin IS NOT NULL AND a.datname = current_database() AND a.pid <> pg_backend_pid()
    UNION ALL
    SELECT format('prepared transaction %L', p.gid), clock_timestamp() - p.prepared FROM pg_prepared_xacts p WHERE p.database = current_database()
) s WHERE age IS NOT NULL ORDER BY age DESC LIMIT 1
