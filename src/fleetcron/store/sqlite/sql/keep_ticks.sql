-- A late tick that runs after all: judged once, and told what was judged away in its favour.
UPDATE run SET late_at = NULL, missed = ?2 WHERE id = ?1
