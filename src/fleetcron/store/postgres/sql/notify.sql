-- Wake the workers of these queues; a payload per queue, so that PostgreSQL folds equal ones.
SELECT pg_notify('fleetcron.wake', q) FROM unnest($1::text[]) q
