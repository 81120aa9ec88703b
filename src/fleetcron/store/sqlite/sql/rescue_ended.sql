-- The runs of dead workers by what became of them. Index: lease's key, run's id.
SELECT r.id, r.state, r.attempt, j.dead_letter FROM json_each(?1) w CROSS JOIN lease l CROSS JOIN run r CROSS JOIN job j
WHERE l.worker = w.value AND r.id = l.run_id AND j.name = r.job
