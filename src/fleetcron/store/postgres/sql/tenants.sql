-- Tenants that have limits, with how many of their runs are held by workers: for people. Index: run_pkey.
SELECT l.name, l.rate, l.burst, l.max_running, l.weight, l.paused, coalesce(h.running, 0) AS running
FROM fleetcron.limiter l LEFT JOIN (
    SELECT r.tenant, count(*) AS running FROM fleetcron.lease e JOIN fleetcron.run r ON r.id = e.run_id GROUP BY r.tenant) h ON h.tenant = l.name
WHERE l.kind = 'tenant' ORDER BY l.name
