-- A claimed run leaves `ready`. Index: ready's key.
DELETE FROM ready WHERE queue = ?1 AND priority = ?2 AND tenant = ?3 AND due_at = ?4 AND run_id = ?5
