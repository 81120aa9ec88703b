-- Backfills, newest first, with what has ended and is not counted yet. Index: backfill's id backwards, backfill_run's key, run's id.
SELECT b.id, b.schedule, b.start_at AS start, b.end_at AS "end", b.ordering AS "order", b.mode, b.max_running, b.state, b.reason,
       b.cursor_at AS cursor, b.total, b.created, b.existing, b.created_at, b.finished_at,
       b.done + (SELECT count(*) FROM backfill_run o CROSS JOIN run r
                 WHERE o.backfill = b.id AND r.id = o.run_id AND r.state IN ('succeeded', 'discarded')) AS done,
       b.failed + (SELECT count(*) FROM backfill_run o CROSS JOIN run r
                   WHERE o.backfill = b.id AND r.id = o.run_id AND r.state NOT IN ('open', 'succeeded', 'discarded')) AS failed
FROM backfill b WHERE (?1 IS NULL OR b.id = ?1) AND (?2 IS NULL OR b.schedule = ?2) AND b.id < ?3
ORDER BY b.id DESC LIMIT ?4
