-- So many more runs were refused, because the queue was full. Index: queue_pkey.
UPDATE fleetcron.queue SET refused = refused + $2 WHERE name = $1
