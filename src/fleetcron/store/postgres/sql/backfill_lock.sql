-- One backfill, locked: nobody else counts or writes its runs until this transaction ends. Index: backfill_pkey.
SELECT id, schedule, start_at AS start, end_at AS "end", ordering AS "order", mode, max_running, state, reason, cursor_at AS cursor, total,
       created, existing, done, failed, created_at, finished_at
FROM fleetcron.backfill WHERE id = $1 FOR UPDATE
