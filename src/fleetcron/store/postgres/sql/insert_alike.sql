-- insert.sql for runs that differ in nothing but their payloads ($11), as submit_many makes them: two thirds of its time, because a list is
-- sent and read instead of twelve. One row with the ids, in input order; none if the queue has a depth: then insert.sql looks at that.
-- Index: queue_pkey, job_name_key, lane_place. Locks: as insert.sql.
WITH one AS MATERIALIZED (
    SELECT n.now, coalesce($2::timestamptz, n.now + $3::interval, n.now) AS due_at, (SELECT j.id FROM fleetcron.job j WHERE j.name = $5::text) AS job_id
    FROM (SELECT coalesce($1::timestamptz, now()) AS now) n
    WHERE NOT EXISTS (SELECT 1 FROM fleetcron.queue q WHERE q.name = $6::text AND q.max_depth IS NOT NULL)),
input AS MATERIALIZED (
    SELECT nextval('fleetcron.run_id_seq') AS id, p.payload, p.ordinal FROM one, unnest($11::text[]) WITH ORDINALITY AS p(payload, ordinal)),
history AS (
    INSERT INTO fleetcron.run (id, created_at, due_at, expires_at, priority, job, queue, tenant, gate, payload)
    SELECT i.id, o.now, o.due_at, o.due_at + $4::interval, $7::smallint, $5::text, $6::text, $8::text, $9::text, i.payload::json
    FROM one o, input i ORDER BY i.ordinal),
soon AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id)
    SELECT $6::text, $7::smallint, $8::text, o.due_at, i.id, o.job_id FROM one o, input i
    WHERE o.due_at < date_trunc('minute', o.now) + interval '2 minutes'),
later AS (
    INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id)
    SELECT o.due_at, i.id, $6::text, $7::smallint, $8::text, o.job_id FROM one o, input i
    WHERE o.due_at >= date_trunc('minute', o.now) + interval '2 minutes'),
lanes AS (
    INSERT INTO fleetcron.lane (queue, priority, tenant) SELECT $6::text, $7::smallint, $8::text FROM one
    WHERE NOT EXISTS (SELECT 1 FROM fleetcron.lane l WHERE l.queue = $6::text AND l.priority = $7::smallint AND l.tenant = $8::text)),
wake AS (SELECT pg_notify('fleetcron.wake', q) FROM unnest($10::text[]) q)
SELECT ARRAY(SELECT id FROM input ORDER BY ordinal) AS ids, o.due_at, (SELECT count(*) FROM wake) FROM one o
