-- Backfills, newest first, with what has ended and is not counted yet. Index: backfill_pkey backwards, backfill_run_pkey, run_pkey.
SELECT b.id, b.schedule, b.start_at AS start, b.end_at AS "end", b.ordering AS "order", b.mode, b.max_running, b.state, b.reason,
       b.cursor_at AS cursor, b.total, b.created, b.existing, b.done + e.done AS done, b.failed + e.failed AS failed, b.created_at,
       b.finished_at
FROM fleetcron.backfill b CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE r.state IN ('succeeded', 'discarded')) AS done,
           count(*) FILTER (WHERE r.state NOT IN ('open', 'succeeded', 'discarded')) AS failed
    FROM fleetcron.backfill_run o JOIN fleetcron.run r ON r.id = ANY (ARRAY[o.run_id]) WHERE o.backfill = b.id) e
WHERE ($1::bigint IS NULL OR b.id = $1) AND ($2::text IS NULL OR b.schedule = $2) AND ($3::bigint IS NULL OR b.id < $3)
ORDER BY b.id DESC LIMIT $4
