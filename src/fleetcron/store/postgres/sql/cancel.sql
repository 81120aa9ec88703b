-- Cancel: a waiting run ends now; a running one is asked to stop (its worker sees it at the next heartbeat). No row: nothing was found
-- in one snapshot (a claim or completion was under way); the caller looks again. Index: run_pkey, then the full keys of where it waits.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
it AS MATERIALIZED (SELECT * FROM fleetcron.run WHERE id = $2),
hot AS (DELETE FROM fleetcron.ready q USING it
        WHERE q.queue = ANY (ARRAY[it.queue]) AND (q.priority, q.tenant, q.due_at, q.run_id) = (it.priority, it.tenant, it.due_at, it.id) RETURNING q.run_id),
cold AS (DELETE FROM fleetcron.timetable q USING it WHERE q.due_at = ANY (ARRAY[it.due_at]) AND q.run_id = it.id RETURNING q.run_id),
parked AS (DELETE FROM fleetcron.parked q USING it WHERE q.gate = ANY (ARRAY[it.gate]) AND (q.due_at, q.run_id) = (it.due_at, it.id) RETURNING q.run_id),
waiting AS (SELECT run_id FROM hot UNION ALL SELECT run_id FROM cold UNION ALL SELECT run_id FROM parked),
closed AS (UPDATE fleetcron.run r SET state = 'cancelled', reason = 'cancelled while waiting', finished_at = n.now FROM n
           WHERE r.id = (SELECT run_id FROM waiting) AND r.state = 'open' RETURNING r.id),
undup AS (DELETE FROM fleetcron.dedup WHERE run_id = (SELECT id FROM closed) AND until IS NULL),
asked AS (UPDATE fleetcron.lease l SET cancel = true FROM fleetcron.worker w WHERE l.worker = ANY (ARRAY[w.id]) AND l.run_id = $2 RETURNING l.run_id)
SELECT 'cancelled' AS answer FROM closed
UNION ALL SELECT 'asked' FROM asked
UNION ALL SELECT 'too late' FROM it WHERE it.state <> 'open'
