-- How many hold a gate that this transaction has locked, and how many stand before the run ($2 due, $3 id) in its line: older ones, or while
-- the gate is held anybody who waits (for queue_one, which lets one wait). A statement of its own: it must see what was committed before
-- the lock was granted. Index: lease_gate, parked_pkey.
SELECT h.running, (SELECT count(*) FROM fleetcron.parked p WHERE p.gate = $1 AND (h.running > 0 OR (p.due_at, p.run_id) < ($2::timestamptz, $3::bigint)))
FROM (SELECT count(*) AS running FROM fleetcron.lease WHERE gate = $1) h
