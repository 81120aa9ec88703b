-- Live nodes with their worker processes, and what their schedulers know of their electors. Index: scheduler_pkey.
SELECT n.node, n.host, n.pid, n.roles, n.queues, n.version, n.tzdata, n.started_at, n.heartbeat_at,
       coalesce((SELECT array_agg(w.pid ORDER BY w.pid) FROM fleetcron.worker w WHERE w.node = n.node), '{}') AS worker_pids,
       coalesce((SELECT sum(w.slots) FROM fleetcron.worker w WHERE w.node = n.node), 0)::int AS slots,
       (SELECT count(*) FROM fleetcron.worker w JOIN fleetcron.lease l ON l.worker = w.id WHERE w.node = n.node)::int AS running,
       (SELECT s.elector FROM fleetcron.scheduler s WHERE s.node = n.node) AS elector
FROM fleetcron.node n WHERE n.expires_at > coalesce($1::timestamptz, now()) ORDER BY n.started_at
