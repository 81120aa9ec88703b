-- Remember a step, if the lease is still held. No row: it is lost.
INSERT INTO step (run_id, name, result) SELECT run_id, ?4, ?5 FROM lease WHERE worker = ?1 AND run_id = ?2 AND fence = ?3
ON CONFLICT (run_id, name) DO UPDATE SET result = excluded.result RETURNING run_id
