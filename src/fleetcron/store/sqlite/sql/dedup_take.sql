-- Claim a dedup key for a new run: a row comes back if it was free (or its time had passed). Index: dedup's key.
INSERT INTO dedup (job, tenant, key, run_id, scope, until) VALUES (?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (job, tenant, key) DO UPDATE SET run_id = excluded.run_id, scope = excluded.scope, until = excluded.until WHERE dedup.until <= ?1
RETURNING run_id
