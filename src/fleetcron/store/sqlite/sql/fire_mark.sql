-- How far ahead a shard's ticks are written.
UPDATE shard SET ticks_until = ?2 WHERE id = ?1
