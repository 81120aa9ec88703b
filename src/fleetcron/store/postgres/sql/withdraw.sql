-- Take back the unstarted ticks of a schedule that this transaction has locked: its row may be edited, paused or removed. What waits for
-- another attempt, or was handed back by a worker that had started it, is left to end; so are a backfill's runs (priority 10).
-- Ticks of the future were never due: their runs go without a trace, and the new definition may name the instant again.
-- Ticks already due (nominal_at <= now) become state `missed`, returned so that a miss record is written.
-- $3: nothing older waits in ready or timetable that is due at its own instant. What an earlier judgement let run is due when it was judged:
-- it is among the last $6 ticks up to $5. What is parked at the schedule's gate, or in its job's line, may be of any age.
-- What a worker has claimed ahead and not started is asked to stop there (the caller tells workers to look), if no ticks follow: a new
-- definition most often names the same instant, and would find it taken by a run that does not run.
-- Index: run_tick twice, then the keys of ready and timetable; parked_pkey, run_pkey. Locks: ready and timetable rows; those being claimed right now are left alone.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
tick AS MATERIALIZED (
    SELECT r.id, r.queue, r.priority, r.tenant, r.due_at, r.nominal_at FROM fleetcron.run r
    WHERE r.schedule = $2 AND r.state = 'open' AND r.nominal_at >= $3 AND r.started_at IS NULL AND r.priority <= 9
    UNION ALL
    SELECT r.id, r.queue, r.priority, r.tenant, r.due_at, r.nominal_at
    FROM (SELECT * FROM fleetcron.run WHERE schedule = $2 AND nominal_at <= $5 AND priority <= 9 ORDER BY nominal_at DESC LIMIT $6) r
    WHERE r.nominal_at < $3 AND r.state = 'open' AND r.started_at IS NULL),
hot AS (SELECT q.ctid, q.run_id FROM fleetcron.ready q JOIN tick t
        ON q.queue = ANY (ARRAY[t.queue]) AND (q.priority, q.tenant, q.due_at, q.run_id) = (t.priority, t.tenant, t.due_at, t.id)
        WHERE q.attempt = 0 FOR UPDATE OF q SKIP LOCKED),
cold AS (SELECT q.ctid, q.run_id FROM fleetcron.timetable q JOIN tick t ON q.due_at = ANY (ARRAY[t.due_at]) AND q.run_id = t.id
         WHERE q.attempt = 0 FOR UPDATE OF q SKIP LOCKED),
gone AS (
    DELETE FROM fleetcron.ready WHERE ctid = ANY (ARRAY(SELECT ctid FROM hot)) RETURNING run_id),
gone_cold AS (
    DELETE FROM fleetcron.timetable WHERE ctid = ANY (ARRAY(SELECT ctid FROM cold)) RETURNING run_id),
taken AS (SELECT run_id FROM gone UNION ALL SELECT run_id FROM gone_cold),
parked AS (DELETE FROM fleetcron.parked p USING fleetcron.run r
           WHERE p.gate = ANY (ARRAY['schedule:' || $2, (SELECT 'job:' || s.job FROM fleetcron.schedule s WHERE s.name = $2)])
             AND p.attempt = 0 AND r.id = ANY (ARRAY[p.run_id]) AND r.schedule = $2 AND r.started_at IS NULL AND r.priority <= 9 RETURNING p.run_id),
every AS (SELECT run_id FROM taken UNION ALL SELECT run_id FROM parked),
held AS (UPDATE fleetcron.lease l SET cancel = true FROM fleetcron.worker w, tick t WHERE l.worker = ANY (ARRAY[w.id]) AND l.run_id = t.id AND l.ahead
         AND $4 IN ('paused', 'schedule removed') AND t.id NOT IN (SELECT run_id FROM every)),
erased AS (DELETE FROM fleetcron.run r WHERE r.id = ANY (ARRAY(SELECT run_id FROM every)) AND r.nominal_at > (SELECT now FROM n)),
closed AS (UPDATE fleetcron.run r SET state = 'missed', reason = $4, finished_at = (SELECT now FROM n)
           WHERE r.id = ANY (ARRAY(SELECT run_id FROM every)) AND r.nominal_at <= (SELECT now FROM n)
           RETURNING r.nominal_at)
SELECT nominal_at FROM closed ORDER BY nominal_at
