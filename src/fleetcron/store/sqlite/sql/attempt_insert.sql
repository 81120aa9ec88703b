-- One finished attempt.
INSERT INTO attempt (run_id, fence, number, state, started_at, finished_at, worker, error, traceback) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
