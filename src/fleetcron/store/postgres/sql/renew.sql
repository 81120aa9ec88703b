-- Renew a leadership that is still valid, named by node and term. No row: it is over.
UPDATE fleetcron.shard SET expires_at = coalesce($1::timestamptz, clock_timestamp()) + $5::interval
WHERE id = $2 AND node = $3 AND term = $4 AND expires_at >= coalesce($1::timestamptz, clock_timestamp()) RETURNING term
