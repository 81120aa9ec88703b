-- So many more of a backfill's runs have ended well, and otherwise. Index: backfill's id.
UPDATE backfill SET done = done + ?2, failed = failed + ?3 WHERE id = ?1
