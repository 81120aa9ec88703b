-- Replay dead letters: each one that is still there is opened again, once (a second press finds no row). Attempts start anew; the old
-- ones stay in the history. A letter of a job that is gone stays. Index: dead_letter's key, run's id, job.name.
UPDATE run SET state = 'open', attempt = 0, deaths = 0, handbacks = 0, due_at = ?1, finished_at = NULL, reason = 'replayed', late_at = NULL,
    expires_at = NULL
WHERE id IN (SELECT d.run_id FROM json_each(?2) i CROSS JOIN dead_letter d ON d.run_id = i.value) AND state = 'failed'
  AND EXISTS (SELECT 1 FROM job j WHERE j.name = run.job)
RETURNING id
