-- What a worker holds that was asked to stop is cancelled. Index: lease's key, run's id.
UPDATE run SET state = 'cancelled', reason = 'cancelled', finished_at = ?1
WHERE id IN (SELECT run_id FROM lease WHERE worker = ?2 AND cancel = 1) RETURNING id
