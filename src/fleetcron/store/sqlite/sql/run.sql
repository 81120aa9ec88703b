-- A run, with the state as users see it: what is open is told apart by its lease, attempts and due time. Index: run's id, lease's key.
SELECT id, job, schedule, tenant, queue, priority, nominal_at, due_at, attempt, payload, result, error, key, created_at,
       coalesce(leased_at, started_at) AS started_at, finished_at, generation, reason, worker,
       CASE WHEN state <> 'open' THEN state
            WHEN leased_at <= ?1 THEN 'running'
            WHEN attempt > 0 THEN 'retrying'
            WHEN due_at <= ?1 THEN 'ready'
            ELSE 'scheduled' END AS state
FROM run_seen WHERE id = ?2
