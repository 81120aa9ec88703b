-- A leased run of a limited job is let in: it counts from now on. Index: lease's key.
UPDATE lease SET job = ?4 WHERE worker = ?1 AND run_id = ?2 AND fence = ?3
