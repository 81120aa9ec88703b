-- Step down in order, so that a successor need not wait. A resignation of an older term finds no row.
UPDATE shard SET expires_at = -9000000000000000000, node = NULL, host = NULL, pid = NULL WHERE id = ?1 AND node = ?2 AND term = ?3 RETURNING term
