-- Register or change one job. Index: job_name_key.
INSERT INTO fleetcron.job AS j (name, queue, priority, max_attempts, dead_letter, spec)
VALUES ($1, $2, $3, $4, $5, $6::json)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    dead_letter = excluded.dead_letter, spec = excluded.spec, updated_at = now()
    WHERE j.spec::text <> excluded.spec::text
