-- Insert runs: into the history, and into `ready` (due within the horizon) or `timetable` (later). Ids come back in input order.
-- A job that the registry does not know violates job_id NOT NULL: nothing is inserted. $14 asks for one NOTIFY a queue. Unless its depth was
-- looked at ($15), nothing goes into a queue that has one, and no row comes back: one probe of a small table.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
input AS MATERIALIZED (
    SELECT coalesce(i.id, nextval('fleetcron.run_id_seq')) AS id, i.job, i.payload, i.queue, i.priority, i.tenant,
           coalesce(i.due_at, n.now + i.delay, n.now) AS due_at, i.start_deadline, i.key, i.gate, i.flags, i.ordinal, n.now
    FROM n, unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::timestamptz[], $9::interval[],
                   $10::interval[], $11::text[], $12::text[], $13::smallint[])
         WITH ORDINALITY AS i(id, job, payload, queue, priority, tenant, due_at, delay, start_deadline, key, gate, flags, ordinal)
    WHERE $15 OR NOT EXISTS (SELECT 1 FROM fleetcron.queue q WHERE q.name = ANY ($5::text[]) AND q.max_depth IS NOT NULL)),
history AS (
    INSERT INTO fleetcron.run (id, created_at, due_at, expires_at, priority, job, queue, tenant, key, gate, payload)
    SELECT id, now, due_at, due_at + start_deadline, priority, job, queue, tenant, key, gate, payload::json FROM input ORDER BY ordinal),
soon AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, flags)
    SELECT i.queue, i.priority, i.tenant, i.due_at, i.id, j.id, i.flags
    FROM input i LEFT JOIN fleetcron.job j ON j.name = i.job WHERE i.due_at < date_trunc('minute', i.now) + interval '2 minutes'),
later AS (
    INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id, flags)
    SELECT i.due_at, i.id, i.queue, i.priority, i.tenant, j.id, i.flags
    FROM input i LEFT JOIN fleetcron.job j ON j.name = i.job WHERE i.due_at >= date_trunc('minute', i.now) + interval '2 minutes'),
lanes AS (
    INSERT INTO fleetcron.lane (queue, priority, tenant) SELECT DISTINCT queue, priority, tenant FROM input f
    WHERE NOT EXISTS (SELECT 1 FROM fleetcron.lane l WHERE l.queue = f.queue AND l.priority = f.priority AND l.tenant = f.tenant)),
wake AS (SELECT pg_notify('fleetcron.wake', q) FROM unnest($14::text[]) q)
SELECT id, due_at, (SELECT count(*) FROM wake) FROM input ORDER BY ordinal
