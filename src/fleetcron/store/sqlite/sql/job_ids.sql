-- Ids of jobs by name. Index: job.name.
SELECT name, id FROM job WHERE name IN (SELECT value FROM json_each(?1))
