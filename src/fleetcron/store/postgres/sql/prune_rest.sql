-- Old miss records, sessions, audit lines, backfills, and dedup keys whose time has passed.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
m AS (DELETE FROM fleetcron.miss USING n WHERE decided_at < n.now - $2::interval),
s AS (DELETE FROM fleetcron.session USING n WHERE ended_at < n.now - $2::interval),
a AS (DELETE FROM fleetcron.audit USING n WHERE at < n.now - $2::interval),
b AS (DELETE FROM fleetcron.backfill k USING n WHERE k.finished_at < n.now - $2::interval
      AND NOT EXISTS (SELECT 1 FROM fleetcron.backfill_run o WHERE o.backfill = k.id))
DELETE FROM fleetcron.dedup USING n WHERE until < n.now
