-- The runs that dead workers (?2, JSON) held. An attempt was counted at claim; a run whose attempts are used up fails; what was claimed ahead and
-- is not known to have started goes back untouched (three times: a run that kills its worker before the start could be noted must not do so
-- for ever); the rest waits 0.5 s × 2^(deaths−1), at most 60 s. Index: lease's key, run's id, job.name.
UPDATE run SET
    state = CASE WHEN l.cancel = 1 THEN 'cancelled' WHEN l.untouched OR l.attempt < l.max_attempts THEN 'open' ELSE 'failed' END,
    attempt = iif(l.untouched, run.attempt, l.attempt),
    deaths = run.deaths + (NOT l.untouched OR l.started_at <= ?1),
    due_at = CASE WHEN l.cancel = 1 OR l.untouched OR l.attempt >= l.max_attempts THEN run.due_at
                  ELSE ?1 + min(60000000, 500000 << min(run.deaths, 10)) END,
    late_at = iif(l.untouched, run.late_at, NULL), expires_at = iif(l.untouched, run.expires_at, NULL),
    error = iif(l.untouched, run.error, 'worker died'),
    reason = iif(l.cancel = 1, 'cancelled', NULL),
    worker = l.worker, fence = l.fence,
    started_at = iif(l.untouched, run.started_at, l.started_at),
    finished_at = CASE WHEN l.cancel = 1 OR (NOT l.untouched AND l.attempt >= l.max_attempts) THEN ?1 END
FROM (SELECT l.worker, l.run_id, l.fence, l.attempt, l.started_at, l.cancel, l.ahead AND r.deaths < 3 AS untouched, j.max_attempts
      FROM json_each(?2) w CROSS JOIN lease l CROSS JOIN run r CROSS JOIN job j
      WHERE l.worker = w.value AND r.id = l.run_id AND j.name = r.job) l
WHERE run.id IN (SELECT run_id FROM lease WHERE worker IN (SELECT value FROM json_each(?2))) AND run.id = l.run_id
