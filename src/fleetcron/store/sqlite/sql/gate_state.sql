-- Who holds a gate, and how many wait for it. Index: lease_gate, parked's key.
SELECT (SELECT count(*) FROM lease WHERE gate = ?1), (SELECT count(*) FROM parked WHERE gate = ?1)
