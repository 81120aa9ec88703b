-- A late tick that runs after all, told what was judged away in its favour. If it does not start by ?1 it is judged once more, so that two
-- judgements of a long outage never leave two late runs. One-shots keep having no late_at. Index: run's id.
UPDATE run SET late_at = iif(late_at IS NULL, NULL, ?1), missed = ?3 WHERE id = ?2
