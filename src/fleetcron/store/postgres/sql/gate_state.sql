-- Who holds a gate that this transaction has locked, and how many wait for it. A statement of its own: it must see what was committed
-- before the lock was granted. Index: lease_gate, parked_pkey.
SELECT (SELECT count(*) FROM fleetcron.lease WHERE gate = $1) AS running, (SELECT count(*) FROM fleetcron.parked WHERE gate = $1) AS waiting
