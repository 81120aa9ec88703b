-- A tick as a run, with what its schedule says. Nothing when the tick exists. Index: schedule's id, run_tick.
INSERT INTO run (id, created_at, due_at, nominal_at, prev_at, late_at, expires_at, priority, job, queue, tenant, schedule, gate, overlap,
                 missed, payload)
SELECT ?2, ?1, ?4, ?5, ?6, ?7, ?4 + s.start_deadline, s.priority, s.job, s.queue, s.tenant, s.name,
       CASE WHEN s.overlap <> 'allow' THEN 'schedule:' || s.name END, nullif(s.overlap, 'allow'), ?8, s.payload
FROM schedule s WHERE s.id = ?3
ON CONFLICT (schedule, nominal_at, generation) WHERE schedule IS NOT NULL DO NOTHING
