-- Record attempts that ended in any other way than success: back to `ready` or `timetable` (state open), or closed. The rows that come
-- back are the ones won (see complete.sql). A cancel asked for in the meantime wins over another attempt. A hand-back by shutdown costs no
-- attempt, up to ten times, so that a crash loop ends. A tick put back unstarted can still be late; one that has started is no misfire.
-- The rate token of a limited run that has not started is given back, unless the bucket has been full since: then it has been of no use.
-- Index: lease_pkey, run_pkey, limiter_pkey. Locks: lease, run, limiter, then inserts.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
ended AS (
    SELECT $2::bigint AS owner, e.* FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::int[], $7::interval[], $8::text[],
        $9::timestamptz[], $10::text[], $11::text[], $12::text[], $13::text[], $14::boolean[], $15::boolean[])
        AS e(run_id, fence, state, attempt, delay, record, started_at, error, traceback, result, reason, dead, handback) OFFSET 0),
fate AS (
    DELETE FROM fleetcron.lease l USING ended e WHERE l.worker = ANY (ARRAY[e.owner]) AND l.run_id = e.run_id AND l.fence = e.fence
    RETURNING e.*, l.tenant AS limited, l.started_at AS leased_at, l.attempt AS number, CASE WHEN l.cancel AND e.state = 'open' THEN 'cancelled' ELSE e.state END AS fate),
changed AS (
    UPDATE fleetcron.run r SET state = f.fate::fleetcron.run_state,
        attempt = f.attempt + (f.handback AND f.started_at IS NOT NULL AND r.handbacks >= 10)::int,
        due_at = CASE WHEN f.fate = 'open' AND NOT (f.handback AND f.started_at IS NULL) THEN n.now + f.delay ELSE r.due_at END,
        error = coalesce(f.error, r.error), reason = f.reason, result = f.result::json,
        started_at = coalesce(f.started_at, r.started_at), worker = $2, fence = f.fence,
        finished_at = CASE WHEN f.fate = 'open' THEN NULL ELSE n.now END,
        late_at = CASE WHEN f.started_at IS NULL THEN r.late_at END,
        expires_at = CASE WHEN f.started_at IS NULL THEN r.expires_at END,
        handbacks = r.handbacks + (f.handback AND f.started_at IS NOT NULL)::int
    FROM fate f, n WHERE r.id = ANY (ARRAY[f.run_id])
    RETURNING r.id, r.queue, r.priority, r.tenant, r.due_at, r.attempt, r.job, r.schedule, r.state, r.nominal_at,
        CASE WHEN r.late_at IS NULL OR r.attempt > 0 THEN 0 ELSE 8 END AS flags),
back AS MATERIALIZED (
    SELECT c.*, (SELECT j.id FROM fleetcron.job j WHERE j.name = c.job) AS job_id,
           c.due_at < date_trunc('minute', n.now) + interval '2 minutes' AS soon
    FROM changed c, n WHERE c.state = 'open'),
soon AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
    SELECT queue, priority, tenant, due_at, id, job_id, attempt, flags FROM back WHERE soon),
later AS (
    INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id, attempt, flags)
    SELECT due_at, id, queue, priority, tenant, job_id, attempt, flags FROM back WHERE NOT soon),
kept AS (
    INSERT INTO fleetcron.attempt (run_id, fence, number, state, started_at, finished_at, worker, error, traceback)
    SELECT f.run_id, f.fence, f.number, CASE WHEN f.fate = 'cancelled' THEN 'cancelled' ELSE f.record END, f.started_at, n.now, $2,
           f.error, f.traceback FROM fate f, n WHERE f.record IS NOT NULL),
dead AS (
    INSERT INTO fleetcron.dead_letter (run_id, job, schedule, tenant, attempts, error, died_at)
    SELECT c.id, c.job, c.schedule, c.tenant, f.attempt, f.error, n.now FROM changed c JOIN fate f ON f.run_id = c.id, n
    WHERE f.dead AND f.fate = 'failed' ON CONFLICT (run_id) DO NOTHING),
expired AS (
    INSERT INTO fleetcron.miss (schedule, first, last, count, reason, policy, decided_at)
    SELECT schedule, nominal_at, nominal_at, 1, 'expired', 'start_deadline', n.now FROM changed, n
    WHERE state = 'expired' AND schedule IS NOT NULL AND nominal_at IS NOT NULL),
refund AS (
    UPDATE fleetcron.limiter t SET tat = t.tat - f.n * t.per * interval '1 microsecond'
    FROM (SELECT limited, count(*) AS n, min(leased_at) AS first FROM fate WHERE limited IS NOT NULL AND started_at IS NULL GROUP BY limited) f
    WHERE t.kind = 'tenant' AND t.name = f.limited AND t.per IS NOT NULL AND f.first >= t.filled_at),
undup AS (
    DELETE FROM fleetcron.dedup WHERE run_id = ANY (ARRAY(SELECT id FROM changed WHERE state <> 'open')) AND until IS NULL)
SELECT run_id FROM fate
