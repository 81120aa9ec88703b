-- Who holds a dedup key. Index: dedup's key.
SELECT run_id FROM dedup WHERE job = ?1 AND tenant = ?2 AND key = ?3
