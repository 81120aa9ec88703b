-- Runs by id, with the state as users see it (open is told apart by the lease, attempts and due time). Index: run_pkey, lease_pkey.
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
WHERE r.id = ANY ($2::bigint[])
