-- A tick of a backfill, written as a run due now by what its schedule says at present. Below all live work (priority 10); without a gate (the
-- overlap policy is for live runs), without late_at (it is late on purpose) and without a deadline. The key only tells whose it is, for `runs`;
-- no dedup row goes with it. Nothing when the run exists.
-- Index: schedule's id, run_tick.
INSERT INTO run (id, created_at, due_at, nominal_at, prev_at, generation, priority, job, queue, tenant, schedule, key, payload)
SELECT ?2, ?1, ?1, ?4, ?5, ?6, 10, s.job, s.queue, s.tenant, s.name, 'backfill:' || ?7, s.payload FROM schedule s WHERE s.id = ?3
ON CONFLICT (schedule, nominal_at, generation) WHERE schedule IS NOT NULL DO NOTHING
