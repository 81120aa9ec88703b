-- Note how far a run is, if the lease is still held.
INSERT INTO progress (run_id, done, total, note, at) SELECT run_id, ?5, ?6, ?7, ?1 FROM lease WHERE worker = ?2 AND run_id = ?3 AND fence = ?4
ON CONFLICT (run_id) DO UPDATE SET done = excluded.done, total = excluded.total, note = excluded.note, at = excluded.at RETURNING run_id
