-- The same for the runs of one dedup key. Index: run_key.
SELECT * FROM (
    SELECT id, job, schedule, tenant, queue, priority, nominal_at, due_at, attempt, payload, result, error, key, created_at,
           coalesce(leased_at, started_at) AS started_at, finished_at, generation, reason, worker,
           CASE WHEN state <> 'open' THEN state
                WHEN leased_at <= ?1 THEN 'running'
                WHEN attempt > 0 THEN 'retrying'
                WHEN due_at <= ?1 THEN 'ready'
                ELSE 'scheduled' END AS state
    FROM run_seen
    WHERE key = ?7 AND id < ?2 AND (?3 IS NULL OR job = ?3) AND (?4 IS NULL OR schedule = ?4) AND (?5 IS NULL OR tenant = ?5)
      AND (?6 IS NULL OR queue = ?6) AND (?8 IS NULL OR due_at >= ?8) AND (?9 IS NULL OR due_at < ?9))
WHERE (?10 IS NULL OR state = ?10) ORDER BY id DESC LIMIT ?11
