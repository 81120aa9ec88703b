-- A node leaves; nodes that have been silent for an hour go too.
DELETE FROM fleetcron.node WHERE node = $2 OR expires_at < coalesce($1::timestamptz, now()) - interval '1 hour'
