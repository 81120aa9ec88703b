-- Limits: of tenants and jobs (a rate, a number of runs at once) and of queues (a depth). docs/decisions/0014-limits.md tells why so.
-- One row for each tenant or job that has ever been limited, and a mutex for the claims that it limits. How many run is not kept here but
-- counted in `lease`, which cannot leak; the bucket of the rate is one instant, `tat`, at which it will be full again.
CREATE TABLE fleetcron.limiter (
    kind text NOT NULL, -- tenant or job
    name text NOT NULL,
    rate text, -- as it was given
    per bigint, -- microseconds in which one token grows; NULL: no rate
    burst int, -- as it was given; NULL: what grows in a second
    max_running int,
    weight int NOT NULL DEFAULT 1,
    paused boolean NOT NULL DEFAULT false,
    tat timestamptz NOT NULL DEFAULT '-infinity',
    filled_at timestamptz NOT NULL DEFAULT '-infinity', -- when the bucket was last found full: older tokens cannot be given back
    PRIMARY KEY (name, kind)
) WITH (fillfactor = 50);

CREATE TABLE fleetcron.queue (
    name text PRIMARY KEY,
    max_depth int,
    on_full text NOT NULL DEFAULT 'reject',
    paused boolean NOT NULL DEFAULT false,
    refused bigint NOT NULL DEFAULT 0 -- runs that it was too full to take
) WITH (fillfactor = 50);

-- Rises with every change of a limit, so that workers, who ask each second, read the rest only then.
INSERT INTO fleetcron.meta (key, value) VALUES ('limits', '0');

-- Set on leases of limited tenants only.
ALTER TABLE fleetcron.lease ADD COLUMN tenant text;
CREATE INDEX lease_tenant ON fleetcron.lease (tenant) WHERE tenant IS NOT NULL;
-- Set on leases of limited jobs only, when they are let in.
ALTER TABLE fleetcron.lease ADD COLUMN job text;
CREATE INDEX lease_job ON fleetcron.lease (job) WHERE job IS NOT NULL;

-- A depth counts what waits for a gate, too.
CREATE INDEX parked_queue ON fleetcron.parked (queue);

-- As in 0001_initial.sql, and it does not fill a queue beyond its depth.
CREATE OR REPLACE FUNCTION fleetcron.submit(
    job text, payload jsonb DEFAULT '{}', due_at timestamptz DEFAULT now(), key text DEFAULT NULL, tenant text DEFAULT '',
    queue text DEFAULT NULL, priority int DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    the_job fleetcron.job;
    new_id bigint;
    old_id bigint;
    at timestamptz := coalesce(submit.due_at, now());
    the_queue fleetcron.queue;
    waiting bigint;
BEGIN
    SELECT * INTO the_job FROM fleetcron.job j WHERE j.name = submit.job;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'fleetcron.submit: no job is named %', submit.job
            USING HINT = 'A job is registered when a process that declares it starts, or by "fleetcron job add".';
    END IF;
    IF jsonb_typeof(submit.payload) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'fleetcron.submit: the payload must be a JSON object, not %', jsonb_typeof(submit.payload);
    END IF;
    IF submit.priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'fleetcron.submit: the priority must be from 0 (first) to 9 (last), not %', submit.priority;
    END IF;
    new_id := nextval('fleetcron.run_id_seq');
    IF submit.key IS NOT NULL THEN
        LOOP
            INSERT INTO fleetcron.dedup AS d (job, tenant, key, run_id, scope)
                VALUES (submit.job, submit.tenant, submit.key, new_id, 'finished')
                ON CONFLICT ON CONSTRAINT dedup_pkey DO UPDATE SET run_id = excluded.run_id, scope = excluded.scope, until = NULL
                WHERE d.until <= now()
                RETURNING d.run_id INTO old_id;
            EXIT WHEN old_id = new_id;
            SELECT d.run_id INTO old_id FROM fleetcron.dedup d
                WHERE d.job = submit.job AND d.tenant = submit.tenant AND d.key = submit.key;
            IF FOUND THEN RETURN old_id; END IF;
        END LOOP;
    END IF;
    SELECT * INTO the_queue FROM fleetcron.queue q
        WHERE q.name = coalesce(submit.queue, the_job.queue) AND q.max_depth IS NOT NULL AND at <= now() FOR UPDATE;
    IF FOUND THEN
        SELECT (SELECT count(*) FROM (SELECT 1 FROM fleetcron.ready r
                                      WHERE r.queue = the_queue.name AND r.due_at <= clock_timestamp() LIMIT the_queue.max_depth) r)
             + (SELECT count(*) FROM (SELECT 1 FROM fleetcron.parked p WHERE p.queue = the_queue.name LIMIT the_queue.max_depth) p)
            INTO waiting;
        IF waiting >= the_queue.max_depth THEN
            RAISE EXCEPTION 'fleetcron.submit: queue % is full: % runs wait in it, and its max_depth is %',
                the_queue.name, waiting, the_queue.max_depth USING ERRCODE = 'configuration_limit_exceeded';
        END IF;
    END IF;
    INSERT INTO fleetcron.run (id, due_at, priority, job, queue, tenant, key, payload)
        VALUES (new_id, at, coalesce(submit.priority, the_job.priority), submit.job, coalesce(submit.queue, the_job.queue),
                submit.tenant, submit.key, submit.payload::json);
    INSERT INTO fleetcron.lane (queue, priority, tenant)
        SELECT p.queue, p.priority, p.tenant
        FROM (SELECT coalesce(submit.queue, the_job.queue), coalesce(submit.priority, the_job.priority), submit.tenant) p(queue, priority, tenant)
        WHERE NOT EXISTS (SELECT 1 FROM fleetcron.lane l WHERE l.queue = p.queue AND l.priority = p.priority AND l.tenant = p.tenant);
    IF at < date_trunc('minute', now()) + interval '2 minutes' THEN
        INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, flags)
            VALUES (coalesce(submit.queue, the_job.queue), coalesce(submit.priority, the_job.priority), submit.tenant, at, new_id, the_job.id,
                    CASE WHEN submit.key IS NULL THEN 0 ELSE 4 END);
    ELSE
        INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id, flags)
            VALUES (at, new_id, coalesce(submit.queue, the_job.queue), coalesce(submit.priority, the_job.priority), submit.tenant, the_job.id,
                    CASE WHEN submit.key IS NULL THEN 0 ELSE 4 END);
    END IF;
    RETURN new_id;
END $$;

-- A claim for lanes of limited tenants: claim.sql, but each tenant gives at most what its limits leave, also over several lanes, and each run
-- takes a token of its tenant's rate. Two statements, of which the second sees what was committed before the locks of the first were granted:
-- in one statement the leases counted would be those of a snapshot from before, and two claims together would overshoot. A function, so that
-- it costs one round trip, not five. Tenants that another claim has in hand are passed over. Returns the runs as claim.sql does, and a row with
-- run_id NULL for each tenant that was passed over (payload NULL) or may start no more (payload: [running, max_running, per, burst, used] as
-- they were before this claim).
-- Index: limiter_pkey, lease_tenant, ready_pkey (one range a lane), run_pkey. Locks: limiter, worker FOR KEY SHARE, ready SKIP LOCKED.
CREATE FUNCTION fleetcron.claim_limited(
    p_now timestamptz, p_worker bigint, p_queues text[], p_priorities smallint[], p_tenants text[], p_floors timestamptz[], p_most int[],
    p_limit int, p_jobs int[]
) RETURNS TABLE (
    run_id bigint, fence bigint, attempt int, job text, payload text, due_at timestamptz, late boolean, schedule text, nominal_at timestamptz,
    tenant text, queue text, priority smallint, key text, gate text, overlap text, expires_at timestamptz, late_at timestamptz, missed text,
    generation int, deaths smallint, prev_at timestamptz, now timestamptz
) LANGUAGE plpgsql SET enable_hashjoin = on AS $$ -- our connections have it off (see 0008-plans.md); here, nested loops of 128 lanes cost 10 ms
#variable_conflict use_column
DECLARE
    v_locked text[];
    v_now timestamptz;
BEGIN
    v_locked := ARRAY(
        SELECT l.name FROM fleetcron.limiter l WHERE l.kind = 'tenant' AND l.name = ANY (p_tenants) AND NOT l.paused
        ORDER BY l.name FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    SELECT NULL::bigint, NULL::bigint, NULL::int, NULL, NULL, NULL::timestamptz, NULL::boolean, NULL, NULL::timestamptz, t.name, NULL,
           NULL::smallint, NULL, NULL, NULL, NULL::timestamptz, NULL::timestamptz, NULL, NULL::int, NULL::smallint, NULL::timestamptz,
           NULL::timestamptz
    FROM (SELECT DISTINCT unnest(p_tenants) AS name) t WHERE t.name <> ALL (v_locked);
    IF cardinality(v_locked) = 0 THEN RETURN; END IF;
    v_now := coalesce(p_now, clock_timestamp());
    RETURN QUERY
    WITH alive AS MATERIALIZED (
        SELECT 1 FROM fleetcron.worker w WHERE w.id = p_worker AND w.expires_at > v_now FOR KEY SHARE),
    lim AS MATERIALIZED (
        SELECT l.ctid AS tid, l.name, l.max_running, l.per, l.burst,
               CASE WHEN l.max_running IS NULL THEN 0
                    ELSE (SELECT count(*) FROM fleetcron.lease e WHERE e.tenant = l.name) END AS running,
               (extract(epoch FROM greatest(l.tat, v_now) - v_now) * 1000000)::bigint AS used
        FROM fleetcron.limiter l WHERE l.kind = 'tenant' AND l.name = ANY (v_locked)),
    room AS MATERIALIZED (
        SELECT m.*, greatest(least(
            coalesce(max_running - running, 2147483647),
            coalesce(greatest(coalesce(burst, greatest(1, 1000000 / per)) * per - used, 0) / per, 2147483647)), 0)::int AS room
        FROM lim m),
    pick AS MATERIALIZED (
        SELECT r.tid, l.nth, m.room, row_number() OVER (PARTITION BY l.tenant ORDER BY l.nth, r.due_at, r.run_id) AS n
        FROM unnest(p_queues, p_priorities, p_tenants, p_floors, p_most) WITH ORDINALITY
            AS l(queue, priority, tenant, floor, most, nth)
        JOIN room m ON m.name = l.tenant AND m.room > 0
        CROSS JOIN LATERAL (
            SELECT q.ctid AS tid, q.due_at, q.run_id FROM fleetcron.ready q
            WHERE q.queue = l.queue AND q.priority = l.priority AND q.tenant = l.tenant AND q.due_at >= l.floor AND q.due_at <= v_now
              AND (p_jobs IS NULL OR q.job_id = ANY (p_jobs))
            ORDER BY q.due_at, q.run_id LIMIT least(l.most, m.room) FOR UPDATE SKIP LOCKED) r
        WHERE EXISTS (SELECT 1 FROM alive)),
    gone AS (
        DELETE FROM fleetcron.ready q
        WHERE q.ctid = ANY (ARRAY(SELECT p.tid FROM pick p WHERE p.n <= p.room ORDER BY p.nth, p.n LIMIT p_limit))
        RETURNING q.run_id, q.attempt, q.flags, q.tenant),
    taken AS MATERIALIZED (SELECT o.tenant, count(*) AS n FROM gone o GROUP BY o.tenant),
    spent AS (
        UPDATE fleetcron.limiter t SET tat = greatest(t.tat, v_now) + g.n * t.per * interval '1 microsecond',
            filled_at = CASE WHEN t.tat <= v_now THEN v_now ELSE t.filled_at END
        FROM lim m JOIN taken g ON g.tenant = m.name WHERE t.ctid = m.tid AND m.per IS NOT NULL),  -- locked, and so still there
    undup AS (
        DELETE FROM fleetcron.dedup d WHERE d.ctid = ANY (ARRAY(  -- in the order in which inserts lock keys
            SELECT k.ctid FROM fleetcron.dedup k WHERE k.run_id = ANY (ARRAY(SELECT o.run_id FROM gone o WHERE o.flags & 1 = 1))
            ORDER BY k.job, k.tenant, k.key FOR UPDATE))),
    leased AS (
        INSERT INTO fleetcron.lease AS e (worker, run_id, fence, attempt, started_at, tenant)
        SELECT p_worker, o.run_id, nextval('fleetcron.fence'), o.attempt + 1, v_now, o.tenant FROM gone o
        RETURNING e.run_id, e.fence, e.attempt)
    SELECT NULL::bigint, NULL::bigint, NULL::int, NULL, json_build_array(m.running, m.max_running, m.per, m.burst, m.used)::text,
           NULL::timestamptz, NULL::boolean, NULL, NULL::timestamptz, m.name, NULL, NULL::smallint, NULL, NULL, NULL, NULL::timestamptz,
           NULL::timestamptz, NULL, NULL::int, NULL::smallint, NULL::timestamptz, NULL::timestamptz
    FROM room m LEFT JOIN taken g ON g.tenant = m.name WHERE m.room <= coalesce(g.n, 0)
    UNION ALL
    (SELECT l.run_id, l.fence, l.attempt, r.job, r.payload::text, r.due_at, r.late_at IS NOT NULL AND r.late_at < v_now,
            r.schedule, r.nominal_at, r.tenant, r.queue, r.priority, r.key, r.gate, r.overlap, r.expires_at, r.late_at, r.missed::text,
            r.generation, r.deaths, r.prev_at, coalesce(p_now, clock_timestamp())
     FROM leased l JOIN fleetcron.run r ON r.id = ANY (ARRAY[l.run_id])
     ORDER BY r.due_at, l.run_id);
END $$;
