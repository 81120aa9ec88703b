-- The next ?2 numbers of a counter; answers the last of them. Index: meta's key.
UPDATE meta SET value = value + ?2 WHERE key = ?1 RETURNING value
