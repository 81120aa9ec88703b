-- on_duplicate="replace": the waiting run takes the newer payload, due time and start deadline: 'replaced'. 'busy': somebody has moved it
-- since this statement began (a promotion, a claim, a cancel): look again. No row: it has started or ended. The row where it waits is locked
-- first, then the run: the order of a cancel. Index: run_pkey, then the keys of ready, timetable and parked ("= ANY": see complete.sql).
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
old AS MATERIALIZED (SELECT * FROM fleetcron.run WHERE id = $2 AND state = 'open'),
in_ready AS (SELECT q.ctid FROM fleetcron.ready q JOIN old o
             ON q.queue = ANY (ARRAY[o.queue]) AND (q.priority, q.tenant, q.due_at, q.run_id) = (o.priority, o.tenant, o.due_at, o.id) FOR UPDATE OF q),
in_timetable AS (SELECT q.ctid FROM fleetcron.timetable q JOIN old o ON q.due_at = ANY (ARRAY[o.due_at]) AND q.run_id = o.id FOR UPDATE OF q),
in_parked AS (SELECT q.ctid FROM fleetcron.parked q JOIN old o ON q.gate = ANY (ARRAY[o.gate]) AND q.due_at = ANY (ARRAY[o.due_at]) AND q.run_id = o.id
              FOR UPDATE OF q),
hot AS (DELETE FROM fleetcron.ready WHERE ctid = ANY (ARRAY(SELECT ctid FROM in_ready)) RETURNING run_id, job_id, attempt, flags),
cold AS (DELETE FROM fleetcron.timetable WHERE ctid = ANY (ARRAY(SELECT ctid FROM in_timetable)) RETURNING run_id, job_id, attempt, flags),
parked AS (DELETE FROM fleetcron.parked WHERE ctid = ANY (ARRAY(SELECT ctid FROM in_parked)) RETURNING run_id, job_id, attempt, flags),
moved AS (SELECT * FROM hot UNION ALL SELECT * FROM cold UNION ALL SELECT * FROM parked),
fresh AS (UPDATE fleetcron.run r SET payload = $3::json, due_at = coalesce($4::timestamptz, n.now + $5::interval, n.now),
              expires_at = coalesce($4::timestamptz, n.now + $5::interval, n.now) + $6::interval
          FROM n WHERE r.id = (SELECT run_id FROM moved) RETURNING r.*),
soon AS (INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
         SELECT f.queue, f.priority, f.tenant, f.due_at, f.id, m.job_id, m.attempt, m.flags FROM fresh f, moved m, n
         WHERE f.due_at < date_trunc('minute', n.now) + interval '2 minutes'),
later AS (INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id, attempt, flags)
          SELECT f.due_at, f.id, f.queue, f.priority, f.tenant, m.job_id, m.attempt, m.flags FROM fresh f, moved m, n
          WHERE f.due_at >= date_trunc('minute', n.now) + interval '2 minutes')
SELECT 'replaced' AS answer FROM fresh
UNION ALL
SELECT 'busy' FROM old o WHERE NOT EXISTS (SELECT 1 FROM moved) AND (
    EXISTS (SELECT 1 FROM fleetcron.ready q WHERE q.queue = ANY (ARRAY[o.queue]) AND (q.priority, q.tenant, q.due_at, q.run_id) = (o.priority, o.tenant, o.due_at, o.id))
    OR EXISTS (SELECT 1 FROM fleetcron.timetable q WHERE q.due_at = ANY (ARRAY[o.due_at]) AND q.run_id = o.id)
    OR EXISTS (SELECT 1 FROM fleetcron.parked q WHERE q.gate = ANY (ARRAY[o.gate]) AND q.due_at = ANY (ARRAY[o.due_at]) AND q.run_id = o.id))
