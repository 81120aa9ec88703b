-- The runs of a worker that were asked to stop. Index: lease's key.
SELECT run_id FROM lease WHERE worker = ?1 AND cancel = 1
