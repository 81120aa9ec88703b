-- Replay dead letters: each one that is still there is opened again, once (a second press finds no row). Attempts start anew; the old
-- ones stay in the history. A letter of a job that is gone stays. Index: dead_letter_pkey, run_pkey, job_name_key.
WITH taken AS (
    DELETE FROM fleetcron.dead_letter d USING fleetcron.job j
    WHERE d.run_id = ANY ($2::bigint[]) AND j.name = ANY (ARRAY[d.job]) RETURNING d.run_id, j.id AS job_id),
back AS (UPDATE fleetcron.run r SET state = 'open', attempt = 0, deaths = 0, handbacks = 0, due_at = coalesce($1::timestamptz, now()),
             finished_at = NULL, reason = 'replayed', late_at = NULL, expires_at = NULL
         FROM taken t WHERE r.id = ANY (ARRAY[t.run_id]) AND r.state = 'failed'
         RETURNING r.id, r.queue, r.priority, r.tenant, r.due_at, t.job_id)
INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id)
SELECT queue, priority, tenant, due_at, id, job_id FROM back RETURNING run_id
