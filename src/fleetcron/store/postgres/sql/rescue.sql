-- Take back the runs of dead worker sessions ($2), which this transaction has locked (worker_lock.sql). Session and leases go in one
-- transaction, so nobody acts on a list read earlier. An attempt was counted at claim; a run whose attempts are used up goes to the dead
-- letters; what was claimed ahead and is not known to have started goes back untouched (three times: a run that kills its worker before
-- the start could be noted must not do so for ever); the rest waits 0.5 s × 2^(deaths−1), at most 60 s.
-- Index: lease_pkey, run_pkey. Locks: worker, lease, run, then inserts.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
dead AS (
    DELETE FROM fleetcron.worker w WHERE w.id = ANY ($2::bigint[]) RETURNING w.id),
lost AS (
    DELETE FROM fleetcron.lease l USING dead WHERE l.worker = ANY (ARRAY[dead.id])
    RETURNING l.run_id, l.fence, l.attempt, l.started_at, l.cancel, l.worker, l.ahead),
fate AS MATERIALIZED (
    SELECT l.*, j.id AS job_id, l.ahead AND r.deaths < 3 AS untouched,
           CASE WHEN l.cancel THEN 'cancelled' WHEN (l.ahead AND r.deaths < 3) OR l.attempt < j.max_attempts THEN 'open' ELSE 'failed' END AS fate,
           j.dead_letter
    FROM lost l JOIN fleetcron.run r ON r.id = ANY (ARRAY[l.run_id]) JOIN fleetcron.job j ON j.name = ANY (ARRAY[r.job]), n),
changed AS (
    UPDATE fleetcron.run r SET state = f.fate::fleetcron.run_state,
        attempt = CASE WHEN f.untouched THEN r.attempt ELSE f.attempt END,
        deaths = r.deaths + (NOT f.untouched OR f.started_at <= n.now)::int,
        due_at = CASE WHEN f.fate = 'open' AND NOT f.untouched
                      THEN n.now + least(interval '60 seconds', interval '0.5 seconds' * power(2, least(r.deaths, 10))) ELSE r.due_at END,
        late_at = CASE WHEN f.untouched THEN r.late_at END, expires_at = CASE WHEN f.untouched THEN r.expires_at END,
        error = CASE WHEN f.untouched THEN r.error ELSE 'worker died' END, reason = CASE WHEN f.fate = 'cancelled' THEN 'cancelled' END,
        worker = f.worker, fence = f.fence, started_at = CASE WHEN f.untouched THEN r.started_at ELSE f.started_at END,
        finished_at = CASE WHEN f.fate <> 'open' THEN n.now END
    FROM fate f, n WHERE r.id = ANY (ARRAY[f.run_id])
    RETURNING r.id, r.queue, r.priority, r.tenant, r.due_at, r.attempt, r.job, r.schedule, r.state, f.job_id,
        CASE WHEN r.late_at IS NULL OR r.attempt > 0 THEN 0 ELSE 8 END AS flags),
back AS (
    INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, attempt, flags)
    SELECT queue, priority, tenant, due_at, id, job_id, attempt, flags FROM changed WHERE state = 'open' RETURNING run_id),
kept AS (
    INSERT INTO fleetcron.attempt (run_id, fence, number, state, started_at, finished_at, worker, error)
    SELECT f.run_id, f.fence, f.attempt, 'lost', f.started_at, n.now, f.worker, 'worker died' FROM fate f, n WHERE NOT f.untouched),
letters AS (
    INSERT INTO fleetcron.dead_letter (run_id, job, schedule, tenant, attempts, error, died_at)
    SELECT c.id, c.job, c.schedule, c.tenant, c.attempt, 'worker died', n.now FROM changed c JOIN fate f ON f.run_id = c.id, n
    WHERE c.state = 'failed' AND f.dead_letter ON CONFLICT (run_id) DO NOTHING RETURNING run_id),
undup AS (
    DELETE FROM fleetcron.dedup WHERE run_id = ANY (ARRAY(SELECT id FROM changed WHERE state <> 'open')) AND until IS NULL),
bye AS (
    UPDATE fleetcron.session s SET ended_at = n.now, ended = 'died' FROM dead, n WHERE s.id = dead.id)
SELECT ARRAY(SELECT id FROM dead) AS workers, (SELECT count(*) FROM back) AS requeued,
       (SELECT count(*) FROM changed WHERE state = 'failed') AS dead
