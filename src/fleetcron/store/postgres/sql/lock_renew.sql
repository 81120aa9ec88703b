-- Renew locks that are still ours, each for its own time; answers their owners. What is missing there is lost. Index: lock_pkey.
WITH n AS (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
UPDATE fleetcron.lock l SET expires_at = n.now + ours.ttl
FROM unnest($2::text[], $3::text[], $4::interval[]) AS ours (name, owner, ttl), n
WHERE l.name = ours.name AND l.owner = ours.owner AND l.expires_at > n.now RETURNING l.owner
