-- What the limits of these locked limiters leave. A statement of its own: in the one that locks, the leases counted would be those of a
-- snapshot from before the lock was granted, and two claims together would overshoot. Index: limiter_pkey, lease_tenant.
SELECT l.name, CASE WHEN l.max_running IS NULL THEN 0 ELSE (SELECT count(*) FROM fleetcron.lease e WHERE e.tenant = l.name) END AS running,
       l.max_running, l.per, l.burst,
       (extract(epoch FROM greatest(l.tat, coalesce($1::timestamptz, statement_timestamp())) - coalesce($1::timestamptz, statement_timestamp())) * 1000000)::bigint AS used
FROM fleetcron.limiter l WHERE l.kind = 'tenant' AND l.name = ANY ($2::text[])
