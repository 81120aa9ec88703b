-- How far a run is. Index: progress_pkey.
SELECT done, total, note, at FROM fleetcron.progress WHERE run_id = $1
