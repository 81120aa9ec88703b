-- The runs that claim.sql just found leave `ready`: the same lane, floor ?4, jobs ?7 and flag, up to the last one found. One range, so that it
-- costs a quarter of a delete by key for each. Index: ready's key.
DELETE FROM ready WHERE queue = ?1 AND priority = ?2 AND tenant = ?3 AND due_at >= ?4 AND (due_at, run_id) <= (?5, ?6)
  AND (?7 IS NULL OR job_id IN (SELECT value FROM json_each(?7)))
  AND (flags & 4 = 0 OR due_at <= ?8)
