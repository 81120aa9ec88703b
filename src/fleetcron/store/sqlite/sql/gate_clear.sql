-- Nobody waits for this gate any more. Index: parked's key.
DELETE FROM parked WHERE gate = ?1
