-- The runs that claim.sql just found are leased, under the fences from ?1 on, in its order: the same range as claim_take.sql. Claimed before it is
-- due: a run starts then, and is "ahead" until it is known to have started. Index: ready's key.
INSERT INTO lease (worker, run_id, fence, attempt, started_at, ahead)
SELECT ?2, run_id, ?1 + row_number() OVER (ORDER BY due_at, run_id) - 1, attempt + 1, max(due_at, ?10), due_at > ?10
FROM ready WHERE queue = ?3 AND priority = ?4 AND tenant = ?5 AND due_at >= ?6 AND (due_at, run_id) <= (?7, ?8)
  AND (?9 IS NULL OR job_id IN (SELECT value FROM json_each(?9)))
  AND (flags & 4 = 0 OR due_at <= ?10)
