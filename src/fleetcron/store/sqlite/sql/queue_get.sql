-- One queue's limits. Index: queue's key.
SELECT max_depth, on_full, paused FROM queue WHERE name = ?1
