-- Which jobs a worker session can run; NULL: all. Index: worker_pkey.
UPDATE fleetcron.worker SET jobs = $2::int[] WHERE id = $1
