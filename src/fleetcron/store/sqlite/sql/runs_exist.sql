-- How many of these runs exist. Index: run's id.
SELECT count(*) FROM run WHERE id IN (SELECT value FROM json_each(?1))
