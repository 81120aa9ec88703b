-- A new backfill.
INSERT INTO fleetcron.backfill (schedule, start_at, end_at, ordering, mode, max_running, total, created_at)
VALUES ($2, $3, $4, $5, $6, $7, $8, coalesce($1::timestamptz, now())) RETURNING id
