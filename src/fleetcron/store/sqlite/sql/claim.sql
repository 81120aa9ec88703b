-- Up to ?5 due runs from the given lanes ([queue, priority, tenant, floor], JSON), in their order and, in a lane, in order of due time:
-- CROSS JOIN keeps the loops as written, so the limit ends them. Lanes carry their lower bound (`floor`), below which this worker knows
-- nothing is left. Index: ready's key (one range a lane), run's id.
SELECT q.run_id, q.attempt, q.flags, r.job, r.payload, q.due_at, r.late_at IS NOT NULL AND r.late_at < ?1 AS late, r.schedule, r.nominal_at,
       q.tenant, q.queue, q.priority, r.key, r.gate, r.overlap, r.expires_at, r.late_at, r.missed, r.generation, r.deaths, r.prev_at
FROM json_each(?2) l CROSS JOIN ready q CROSS JOIN run r
WHERE q.queue = l.value ->> 0 AND q.priority = l.value ->> 1 AND q.tenant = l.value ->> 2 AND q.due_at >= l.value ->> 3 AND q.due_at <= ?3
  AND (?4 IS NULL OR q.job_id IN (SELECT value FROM json_each(?4)))
  AND r.id = q.run_id
LIMIT ?5
