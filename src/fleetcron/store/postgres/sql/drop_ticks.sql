-- Ticks judged away while they waited: out of `ready`, state missed. The judgement has their `ready` rows locked.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
closed AS (
    UPDATE fleetcron.run SET state = 'missed', reason = $3, finished_at = n.now FROM n WHERE id = ANY ($2::bigint[])
    RETURNING id, queue, priority, tenant, due_at)
DELETE FROM fleetcron.ready q USING closed c
WHERE q.queue = ANY (ARRAY[c.queue]) AND (q.priority, q.tenant, q.due_at, q.run_id) = (c.priority, c.tenant, c.due_at, c.id) RETURNING q.run_id
