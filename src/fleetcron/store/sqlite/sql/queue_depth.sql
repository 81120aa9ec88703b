-- How many runs are due and wait in a queue, counted no further than ?3. Index: ready's key, parked_queue.
SELECT (SELECT count(*) FROM (SELECT 1 FROM ready WHERE queue = ?2 AND due_at <= ?1 LIMIT ?3))
     + (SELECT count(*) FROM (SELECT 1 FROM parked WHERE queue = ?2 LIMIT ?3))
