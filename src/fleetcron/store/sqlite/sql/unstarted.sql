-- The ticks of a schedule that wait in `ready`, due up to now. Those without late_at cannot be misfires: they have started once, or waited
-- for their gate, or are of a one-shot. ?3: nothing older can be waiting (first_due.sql minus jitter).
-- Index: run_tick, ready's key.
SELECT r.id, r.nominal_at, r.missed FROM run r CROSS JOIN ready q
WHERE r.schedule = ?2 AND r.nominal_at >= ?3 AND r.nominal_at <= ?1 AND r.state = 'open'
  AND q.queue = r.queue AND q.priority = r.priority AND q.tenant = r.tenant AND q.due_at = r.due_at AND q.run_id = r.id
  AND r.late_at IS NOT NULL
ORDER BY r.nominal_at
