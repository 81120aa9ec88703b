-- The attempts that died with their worker; what had not started was none. Index: lease's key.
INSERT INTO attempt (run_id, fence, number, state, started_at, finished_at, worker, error)
SELECT run_id, fence, attempt, 'lost', started_at, ?1, worker, 'worker died' FROM lease
WHERE worker IN (SELECT value FROM json_each(?2)) AND started_at <= ?1
