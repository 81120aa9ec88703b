-- The leases of these worker sessions end. Index: lease's key.
DELETE FROM lease WHERE worker IN (SELECT value FROM json_each(?1))
