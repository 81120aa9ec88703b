-- A new backfill.
INSERT INTO backfill (id, schedule, start_at, end_at, ordering, mode, max_running, total, created_at)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?1)
