-- What the limits of these jobs leave. A statement of its own, after the one that locks them: see flows.admit. Index: limiter_pkey, lease_job.
SELECT l.name, CASE WHEN l.max_running IS NULL THEN 0 ELSE (SELECT count(*) FROM fleetcron.lease e WHERE e.job = l.name) END AS running,
       l.max_running, l.per, l.burst,
       (extract(epoch FROM greatest(l.tat, coalesce($1::timestamptz, statement_timestamp())) - coalesce($1::timestamptz, statement_timestamp()))
        * 1000000)::bigint AS used
FROM fleetcron.limiter l WHERE l.kind = 'job' AND l.name = ANY ($2::text[])
