-- Runs that were claimed ahead have started: from now on the death of their worker costs an attempt. Told in batches, just after the start.
-- Index: lease_pkey.
UPDATE fleetcron.lease SET ahead = false WHERE worker = $1 AND run_id = ANY ($2::bigint[]) AND ahead
