-- Up to ?8 due runs of one lane, in order of due time. ?5 is the lane's lower bound, below which this worker knows nothing is left.
-- CROSS JOIN keeps the loops as written, so that the limit ends them. Index: ready's key (one range), run's id.
SELECT q.run_id, q.attempt, q.flags, r.job, r.payload, q.due_at, r.late_at IS NOT NULL AND r.late_at < ?1 AS late, r.schedule, r.nominal_at,
       q.tenant, q.queue, q.priority, r.key, r.gate, r.overlap, r.expires_at, r.late_at, r.missed, r.generation, r.deaths, r.prev_at
FROM ready q CROSS JOIN run r
WHERE q.queue = ?2 AND q.priority = ?3 AND q.tenant = ?4 AND q.due_at >= ?5 AND q.due_at <= ?6
  AND (q.flags & 4 = 0 OR q.due_at <= ?1) -- 4: has a dedup key, can be replaced until it is due
  AND (?7 IS NULL OR q.job_id IN (SELECT value FROM json_each(?7)))
  AND r.id = q.run_id
ORDER BY q.due_at, q.run_id LIMIT ?8
