-- Put schedules on the shards that their ids fall to. A schedule that moves at any moment is still fired once: firing compares and sets its
-- next tick.
UPDATE schedule SET shard = id % (SELECT count(*) FROM shard WHERE active = 1)
WHERE id IN (SELECT id FROM schedule WHERE shard <> id % (SELECT count(*) FROM shard WHERE active = 1) ORDER BY id LIMIT ?1)
