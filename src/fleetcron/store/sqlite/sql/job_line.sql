-- The first of a limited job's line. Index: parked's key.
SELECT queue, priority, tenant, due_at, run_id, job_id, attempt, flags, gate FROM parked WHERE gate = 'job:' || ?1 ORDER BY due_at, run_id LIMIT ?2
