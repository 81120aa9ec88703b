-- Due ticks that are judged if they do not start in time (flag 8), oldest first, those after (?2 due, ?3 id), at most ?4: where each is, and
-- its schedule if it is late. For all other runs, and for lanes, it costs nothing. Without INDEXED BY, statistics of a time when no tick waited
-- choose a walk of the table; CROSS JOIN keeps the loops as written.
-- Index: ready_tick, run's id.
SELECT q.due_at, q.run_id, iif(r.late_at < ?1, r.schedule, NULL)
FROM ready q INDEXED BY ready_tick CROSS JOIN run r
WHERE q.flags & 8 <> 0 AND (q.due_at, q.run_id) > (?2, ?3) AND q.due_at <= ?1 AND r.id = q.run_id
ORDER BY q.due_at, q.run_id LIMIT ?4
