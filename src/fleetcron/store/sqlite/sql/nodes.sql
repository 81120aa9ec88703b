-- Live nodes with their worker processes, and what their schedulers know of their electors.
SELECT n.node, n.host, n.pid, n.roles, n.queues, n.version, n.tzdata, n.started_at, n.heartbeat_at,
       (SELECT json_group_array(w.pid) FROM worker w WHERE w.node = n.node) AS worker_pids,
       (SELECT coalesce(sum(w.slots), 0) FROM worker w WHERE w.node = n.node) AS slots,
       (SELECT count(*) FROM worker w CROSS JOIN lease l WHERE l.worker = w.id AND w.node = n.node) AS running,
       (SELECT s.elector FROM scheduler s WHERE s.node = n.node) AS elector
FROM node n WHERE n.expires_at > ?1 ORDER BY n.started_at
