-- A worker session ends in order: whatever it still holds goes back at once, no attempt used. Locks: worker, lease, ready, run.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
w AS (DELETE FROM fleetcron.worker WHERE id = $2 RETURNING id),
left_over AS (DELETE FROM fleetcron.lease l USING w WHERE l.worker = w.id RETURNING l.run_id, l.attempt),
back AS (INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt)
         SELECT r.queue, r.priority, r.tenant, r.due_at, r.id, j.id, l.attempt - 1
         FROM left_over l JOIN fleetcron.run r ON r.id = l.run_id JOIN fleetcron.job j ON j.name = r.job RETURNING run_id),
bye AS (UPDATE fleetcron.session s SET ended_at = n.now, ended = 'stopped' FROM w, n WHERE s.id = w.id)
SELECT count(*) FROM back
