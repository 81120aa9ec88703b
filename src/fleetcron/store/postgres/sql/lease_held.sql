-- Which of these leases the worker still holds; they stay its own until this transaction ends. Index: lease_pkey.
SELECT run_id FROM fleetcron.lease WHERE worker = $1 AND run_id = ANY ($2::bigint[]) AND fence = ANY ($3::bigint[]) FOR UPDATE
