-- How many runs are due and wait in a queue, counted no further than $3. A statement of its own, after the lock on the queue's row: it must
-- see what was committed before the lock was granted. And by the time of this statement: what came into the queue while this transaction waited
-- for the lock is due later than its now(), and was not counted in a first version (63 runs in a queue of 60). Index: ready_pkey, parked_pkey (what waits for a gate is in no order of queues).
SELECT (SELECT count(*) FROM (SELECT 1 FROM fleetcron.ready WHERE queue = $2 AND due_at <= coalesce($1::timestamptz, statement_timestamp()) LIMIT $3) r)
     + (SELECT count(*) FROM (SELECT 1 FROM fleetcron.parked WHERE queue = $2 LIMIT $3) p)
