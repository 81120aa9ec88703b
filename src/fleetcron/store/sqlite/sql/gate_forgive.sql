-- A parked run is not late for a misfire's sake any more, and is found by its gate. Index: run's id.
UPDATE run SET late_at = NULL, gate = ?2 WHERE id = ?1
