-- One queue's limits, locked: the mutex of inserts into a queue with a depth. Index: queue_pkey.
SELECT max_depth, on_full, paused FROM fleetcron.queue WHERE name = $1 FOR UPDATE
