-- on_duplicate="replace": the waiting run takes the newer payload and due time. No row when it has started or ended in the meantime.
-- Index: run_pkey, then the keys of ready and timetable.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
old AS MATERIALIZED (SELECT * FROM fleetcron.run WHERE id = $2 AND state = 'open' FOR UPDATE),
hot AS (DELETE FROM fleetcron.ready q USING old o
        WHERE (q.queue, q.priority, q.tenant, q.due_at, q.run_id) = (o.queue, o.priority, o.tenant, o.due_at, o.id)
        RETURNING q.run_id, q.job_id, q.attempt, q.flags),
cold AS (DELETE FROM fleetcron.timetable q USING old o WHERE (q.due_at, q.run_id) = (o.due_at, o.id)
         RETURNING q.run_id, q.job_id, q.attempt, q.flags),
moved AS (SELECT * FROM hot UNION ALL SELECT * FROM cold),
fresh AS (UPDATE fleetcron.run r SET payload = $3::json, due_at = coalesce($4::timestamptz, n.now + $5::interval, n.now),
              expires_at = coalesce($4::timestamptz, n.now + $5::interval, n.now) + $6::interval
          FROM n WHERE r.id = (SELECT run_id FROM moved) RETURNING r.*),
soon AS (INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
         SELECT f.queue, f.priority, f.tenant, f.due_at, f.id, m.job_id, m.attempt, m.flags FROM fresh f, moved m, n
         WHERE f.due_at < date_trunc('minute', n.now) + interval '2 minutes'),
later AS (INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id, attempt, flags)
          SELECT f.due_at, f.id, f.queue, f.priority, f.tenant, m.job_id, m.attempt, m.flags FROM fresh f, moved m, n
          WHERE f.due_at >= date_trunc('minute', n.now) + interval '2 minutes')
SELECT id FROM fresh
