-- Leased runs of a limited job are let in: they count from now on, and take their tokens. The rows that come back are still held.
-- Index: lease_pkey, limiter_pkey.
WITH n AS (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now),
held AS (
    UPDATE fleetcron.lease SET job = $5 WHERE worker = $2 AND run_id = ANY ($3::bigint[]) AND fence = ANY ($4::bigint[]) RETURNING run_id),
spent AS (
    UPDATE fleetcron.limiter t SET tat = greatest(t.tat, n.now) + (SELECT count(*) FROM held) * t.per * interval '1 microsecond'
    FROM n WHERE t.kind = 'job' AND t.name = $5 AND t.per IS NOT NULL)
SELECT run_id FROM held
