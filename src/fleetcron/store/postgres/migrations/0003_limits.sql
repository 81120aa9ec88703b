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
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);

CREATE TABLE fleetcron.queue (
    name text PRIMARY KEY,
    max_depth int,
    on_full text NOT NULL DEFAULT 'reject',
    paused boolean NOT NULL DEFAULT false
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
        VALUES (coalesce(submit.queue, the_job.queue), coalesce(submit.priority, the_job.priority), submit.tenant) ON CONFLICT DO NOTHING;
    IF at < date_trunc('minute', now()) + interval '2 minutes' THEN
        INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id)
            VALUES (coalesce(submit.queue, the_job.queue), coalesce(submit.priority, the_job.priority), submit.tenant, at, new_id, the_job.id);
    ELSE
        INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id)
            VALUES (at, new_id, coalesce(submit.queue, the_job.queue), coalesce(submit.priority, the_job.priority), submit.tenant, the_job.id);
    END IF;
    RETURN new_id;
END $$;
