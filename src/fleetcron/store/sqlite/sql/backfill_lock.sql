-- One backfill. Index: backfill's id.
SELECT id, schedule, start_at AS start, end_at AS "end", ordering AS "order", mode, max_running, state, reason, cursor_at AS cursor, total,
       created, existing, done, failed, created_at, finished_at
FROM backfill WHERE id = ?1
