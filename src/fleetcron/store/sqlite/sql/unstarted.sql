-- The ticks of a schedule that wait in `ready`, due up to now. Those without late_at cannot be misfires: they have started once, or waited
-- for their gate, or are of a one-shot or a backfill (priority 10). ?3: nothing older waits that is due at its own instant (first_due.sql
-- minus jitter). What an earlier judgement let run is due when it was judged: it is among the last ?5 ticks up to ?4.
-- Index: run_tick twice, ready's key.
SELECT r.id, r.nominal_at, r.missed FROM (
    SELECT * FROM run WHERE schedule = ?2 AND nominal_at >= ?3 AND nominal_at <= ?1
    UNION
    SELECT * FROM (SELECT * FROM run WHERE schedule = ?2 AND nominal_at <= ?4 AND priority <= 9 ORDER BY nominal_at DESC LIMIT ?5)) r
CROSS JOIN ready q
WHERE r.state = 'open' AND r.late_at IS NOT NULL
  AND q.queue = r.queue AND q.priority = r.priority AND q.tenant = r.tenant AND q.due_at = r.due_at AND q.run_id = r.id
ORDER BY r.nominal_at
