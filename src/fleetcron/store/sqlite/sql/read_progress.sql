-- How far a run is.
SELECT done, total, note FROM progress WHERE run_id = ?1
