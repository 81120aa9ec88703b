-- Take over a shard whose leader's time has run out: the term rises. No row: somebody leads. Index: shard_pkey.
UPDATE fleetcron.shard SET node = $3, host = $4, pid = $5, term = term + 1, since = coalesce($1::timestamptz, clock_timestamp()),
    expires_at = coalesce($1::timestamptz, clock_timestamp()) + $6::interval
WHERE id = $2 AND expires_at < coalesce($1::timestamptz, clock_timestamp()) RETURNING term
