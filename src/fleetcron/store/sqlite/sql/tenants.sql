-- Tenants that have limits, with how many of their runs are held by workers: for people. Index: run's id.
WITH h AS (SELECT r.tenant, count(*) AS running FROM lease e CROSS JOIN run r WHERE r.id = e.run_id GROUP BY r.tenant)
SELECT l.name, l.rate, l.burst, l.max_running, l.weight, l.paused, coalesce(h.running, 0) AS running
FROM limiter l LEFT JOIN h ON h.tenant = l.name WHERE l.kind = 'tenant' ORDER BY l.name
