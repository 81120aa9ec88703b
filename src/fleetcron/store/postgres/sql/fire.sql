-- Write ticks as runs and advance their schedules, one statement: (1) the term holds, and its row is locked, so a takeover waits for this
-- commit and a takeover under way makes it write nothing (not FOR SHARE: the mark below would raise the lock, and a judgement by the same
-- leader that holds a share and waits for a schedule would never end); (2) each schedule advances only if next_at and revision are what the
-- ticker read; (3) the runs of those that advanced are inserted, once per (schedule, nominal_at, generation), into `ready`. Flag 8: it
-- is judged if it does not start in time (late_ticks.sql).
-- (coalesce: by its own condition, NOT paused, schedule_due would be a way to read the whole table; "= ANY": see complete.sql.)
-- Index: shard_pkey, schedule_pkey, run_tick. Locks: shard, schedule (in id order), then inserts.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
led AS MATERIALIZED (
    SELECT 1 FROM fleetcron.shard, n WHERE id = $2 AND term = $3 AND expires_at > n.now FOR NO KEY UPDATE OF shard),
want AS MATERIALIZED (
    SELECT * FROM unnest($4::bigint[], $5::bigint[], $6::timestamptz[], $7::timestamptz[], $8::timestamptz[])
        AS w(id, revision, old_next, new_next, prev_at)
    WHERE EXISTS (SELECT 1 FROM led)),
locked AS MATERIALIZED (
    SELECT s.id FROM want w JOIN fleetcron.schedule s ON s.id = ANY (ARRAY[w.id])
    WHERE s.revision = w.revision AND s.next_at = w.old_next AND NOT coalesce(s.paused, false) ORDER BY w.id FOR UPDATE OF s),
advanced AS (
    UPDATE fleetcron.schedule s SET next_at = w.new_next, prev_at = w.prev_at, tzdata = $9
    FROM locked l JOIN want w ON w.id = l.id WHERE s.id = ANY (ARRAY[l.id])
    RETURNING s.id, s.name, s.job, s.queue, s.priority, s.tenant, s.payload, s.overlap, s.start_deadline),
fresh AS (
    INSERT INTO fleetcron.run (created_at, due_at, nominal_at, prev_at, late_at, expires_at, priority, job, queue, tenant, schedule,
                               gate, overlap, payload)
    SELECT n.now, t.due_at, t.nominal_at, t.prev_at, t.late_at, t.due_at + a.start_deadline, a.priority, a.job, a.queue, a.tenant, a.name,
           CASE WHEN a.overlap <> 'allow' THEN 'schedule:' || a.name END, nullif(a.overlap, 'allow'), a.payload
    FROM n, unnest($10::bigint[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::timestamptz[])
         AS t(schedule_id, nominal_at, due_at, late_at, prev_at) JOIN advanced a ON a.id = t.schedule_id
    ORDER BY t.due_at
    ON CONFLICT (schedule, nominal_at, generation) WHERE schedule IS NOT NULL DO NOTHING
    RETURNING id, due_at, queue, priority, tenant, job, CASE WHEN late_at IS NULL THEN 0 ELSE 8 END AS flags),
soon AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, flags)
    SELECT f.queue, f.priority, f.tenant, f.due_at, f.id, (SELECT j.id FROM fleetcron.job j WHERE j.name = f.job), f.flags
    FROM fresh f, n WHERE f.due_at < date_trunc('minute', n.now) + interval '2 minutes'),
later AS (
    INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id, flags)
    SELECT f.due_at, f.id, f.queue, f.priority, f.tenant, (SELECT j.id FROM fleetcron.job j WHERE j.name = f.job), f.flags
    FROM fresh f, n WHERE f.due_at >= date_trunc('minute', n.now) + interval '2 minutes'),
lanes AS (
    INSERT INTO fleetcron.lane (queue, priority, tenant) SELECT DISTINCT queue, priority, tenant FROM fresh f
    WHERE NOT EXISTS (SELECT 1 FROM fleetcron.lane l WHERE l.queue = f.queue AND l.priority = f.priority AND l.tenant = f.tenant)),
mark AS (
    UPDATE fleetcron.shard SET ticks_until = $15 WHERE id = $2 AND term = $3 AND $15::timestamptz IS NOT NULL AND EXISTS (SELECT 1 FROM led))
SELECT EXISTS (SELECT 1 FROM led) AS led, (SELECT count(*) FROM fresh) AS runs, ARRAY(SELECT id FROM advanced) AS advanced,
       ARRAY(SELECT DISTINCT queue FROM fresh) AS queues
