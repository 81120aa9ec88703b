-- A parked run is not late for a misfire's sake any more. Index: run's id.
UPDATE run SET late_at = NULL WHERE id = ?1
