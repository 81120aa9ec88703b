-- Register or change one job. Index: job.name. The id is used only if the job is new.
INSERT INTO job (id, name, queue, priority, max_attempts, dead_letter, spec, updated_at) VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?1)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    dead_letter = excluded.dead_letter, spec = excluded.spec, updated_at = excluded.updated_at
    WHERE job.spec <> excluded.spec
