-- Runs, newest first, with the state as users see it. Index: run_pkey backwards (run_key when a key is named).
SELECT * FROM (
    SELECT r.id, r.job, r.schedule, r.tenant, r.queue, r.priority, r.nominal_at, r.due_at, r.attempt, r.payload::text AS payload,
           r.result::text AS result, r.error, r.key, r.created_at, coalesce(l.started_at, r.started_at) AS started_at, r.finished_at, r.generation, r.reason,
           CASE WHEN r.state <> 'open' THEN r.state::text
                WHEN l.started_at <= coalesce($1::timestamptz, now()) THEN 'running'
                WHEN r.attempt > 0 THEN 'retrying'
                WHEN r.due_at <= coalesce($1::timestamptz, now()) THEN 'ready'
                ELSE 'scheduled' END AS state,
           (SELECT s.host || ':' || s.pid FROM fleetcron.session s WHERE s.id = coalesce(l.worker, r.worker)) AS worker
    FROM fleetcron.run r
    LEFT JOIN LATERAL (SELECT l.worker, l.started_at FROM fleetcron.worker w JOIN fleetcron.lease l ON l.worker = w.id AND l.run_id = r.id
                       LIMIT 1) l ON r.state = 'open'
    WHERE ($2::bigint IS NULL OR r.id < $2) AND ($3::text IS NULL OR r.job = $3) AND ($4::text IS NULL OR r.schedule = $4)
      AND ($5::text IS NULL OR r.tenant = $5) AND ($6::text IS NULL OR r.queue = $6) AND ($7::text IS NULL OR r.key = $7)
      AND ($8::timestamptz IS NULL OR r.due_at >= $8) AND ($9::timestamptz IS NULL OR r.due_at < $9)) v
WHERE ($10::text IS NULL OR v.state = $10)
ORDER BY v.id DESC LIMIT $11
