-- The attempts that die with their worker, before rescue_runs.sql; what goes back untouched was none. Index: lease's key, run's id.
INSERT INTO attempt (run_id, fence, number, state, started_at, finished_at, worker, error)
SELECT l.run_id, l.fence, l.attempt, 'lost', l.started_at, ?1, l.worker, 'worker died'
FROM json_each(?2) w CROSS JOIN lease l CROSS JOIN run r
WHERE l.worker = w.value AND r.id = l.run_id AND NOT (l.ahead AND r.deaths < 3)
