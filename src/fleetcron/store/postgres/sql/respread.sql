-- Put schedules on the shards that their ids fall to; the last id looked at and how many were moved. A schedule that moves at any moment is
-- still fired once: firing compares and sets its next tick. Index: schedule_pkey.
WITH n AS (SELECT count(*) AS shards FROM fleetcron.shard WHERE active),
page AS MATERIALIZED (
    SELECT s.id FROM fleetcron.schedule s, n WHERE s.shard <> s.id % n.shards ORDER BY s.id LIMIT $1 FOR UPDATE OF s SKIP LOCKED),
moved AS (
    UPDATE fleetcron.schedule s SET shard = (s.id % n.shards)::int FROM page, n WHERE s.id = page.id RETURNING s.id)
SELECT count(*) FROM moved
