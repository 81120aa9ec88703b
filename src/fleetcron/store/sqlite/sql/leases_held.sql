-- Which of these runs a worker holds; the caller compares fences. Index: lease's key.
SELECT run_id, fence, attempt, started_at, cancel, tenant FROM lease WHERE worker = ?1 AND run_id IN (SELECT value FROM json_each(?2))
