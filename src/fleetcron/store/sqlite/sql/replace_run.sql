-- on_duplicate="replace": the waiting run takes the newer payload and due time, and with it the newer start deadline. Index: run's id.
UPDATE run SET payload = ?2, due_at = ?3, expires_at = ?3 + ?4 WHERE id = ?1
