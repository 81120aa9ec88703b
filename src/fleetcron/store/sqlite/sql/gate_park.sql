-- A leased run waits for its gate, no attempt used; its lease ends next. From then on it is late for its gate's sake, not for a misfire's:
-- flag 2 keeps it out of judgements. No row: the lease is gone. Index: lease's key, run's id.
INSERT INTO parked (gate, due_at, run_id, queue, priority, tenant, job_id, attempt, flags)
SELECT ?4, r.due_at, r.id, r.queue, r.priority, r.tenant, (SELECT j.id FROM job j WHERE j.name = r.job), l.attempt - 1, 2
FROM lease l CROSS JOIN run r WHERE l.worker = ?1 AND l.run_id = ?2 AND l.fence = ?3 AND r.id = l.run_id
RETURNING run_id
