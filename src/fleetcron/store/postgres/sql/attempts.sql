-- The attempts of a run that ended in any way but the final success, which the run row itself tells. Index: attempt_pkey.
SELECT a.number, a.state, a.started_at, a.finished_at, a.error, a.traceback, a.fence,
       (SELECT s.host || ':' || s.pid FROM fleetcron.session s WHERE s.id = a.worker) AS worker
FROM fleetcron.attempt a WHERE a.run_id = $1
UNION ALL
SELECT r.attempt, 'succeeded', r.started_at, r.finished_at, NULL, NULL, r.fence,
       (SELECT s.host || ':' || s.pid FROM fleetcron.session s WHERE s.id = r.worker)
FROM fleetcron.run r WHERE r.id = $1 AND r.state = 'succeeded'
UNION ALL
SELECT l.attempt, 'running', l.started_at, NULL, NULL, NULL, l.fence,
       (SELECT s.host || ':' || s.pid FROM fleetcron.session s WHERE s.id = l.worker)
FROM fleetcron.worker w JOIN fleetcron.lease l ON l.worker = w.id AND l.run_id = $1
ORDER BY fence
