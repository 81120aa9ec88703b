-- Which of these runs have ended (or no longer exist). Index: run's id.
SELECT i.value FROM json_each(?1) i LEFT JOIN run r ON r.id = i.value WHERE r.id IS NULL OR r.state <> 'open'
