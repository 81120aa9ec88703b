-- overlap="replace": ask whoever holds the gate to stop. Index: lease_gate.
UPDATE lease SET cancel = 1 WHERE gate = ?1
