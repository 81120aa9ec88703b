-- A worker session, locked by this transaction (worker_lock.sql), ends in order: whatever it still holds goes back at once, no attempt used; but what was asked to stop is cancelled.
-- Index: worker_pkey, lease_pkey, run_pkey. Locks: worker, lease, run, then inserts.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
w AS (DELETE FROM fleetcron.worker WHERE id = $2 RETURNING id),
left_over AS (DELETE FROM fleetcron.lease l USING w WHERE l.worker = ANY (ARRAY[w.id]) RETURNING l.run_id, l.attempt, l.cancel),
closed AS (UPDATE fleetcron.run r SET state = 'cancelled', reason = 'cancelled', finished_at = n.now FROM left_over l, n
           WHERE l.cancel AND r.id = ANY (ARRAY[l.run_id]) RETURNING r.id),
undup AS (DELETE FROM fleetcron.dedup WHERE run_id = ANY (ARRAY(SELECT id FROM closed)) AND until IS NULL),
back AS (INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
         SELECT r.queue, r.priority, r.tenant, r.due_at, r.id, (SELECT j.id FROM fleetcron.job j WHERE j.name = r.job), l.attempt - 1,
                CASE WHEN r.late_at IS NULL OR l.attempt > 1 THEN 0 ELSE 8 END
         FROM left_over l JOIN fleetcron.run r ON r.id = ANY (ARRAY[l.run_id]) WHERE NOT l.cancel RETURNING run_id),
bye AS (UPDATE fleetcron.session s SET ended_at = n.now, ended = 'stopped' FROM w, n WHERE s.id = w.id)
SELECT count(*) FROM back
