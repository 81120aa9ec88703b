-- Step down in order, so that a successor need not wait. A resignation of an older term finds no row.
UPDATE fleetcron.shard SET expires_at = '-infinity', node = NULL, host = NULL, pid = NULL
WHERE id = $1 AND node = $2 AND term = $3 RETURNING term
