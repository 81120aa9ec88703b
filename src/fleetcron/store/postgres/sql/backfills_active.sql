-- Backfills that may still create runs, or have open ones; and whether there is something to do: a run has ended, there is room, or all ticks
-- were looked at and nothing is open. Index: backfill_running, backfill_run_pkey (a loose scan), backfill_pkey, run_pkey.
WITH RECURSIVE holder AS (
    (SELECT min(backfill) AS id FROM fleetcron.backfill_run)
    UNION ALL
    SELECT (SELECT min(o.backfill) FROM fleetcron.backfill_run o WHERE o.backfill > h.id) FROM holder h WHERE h.id IS NOT NULL)
SELECT b.id, b.schedule, e.ended OR (b.state = 'running' AND (e.open = 0 OR NOT b.walked AND e.open < b.max_running)) AS due
FROM (SELECT id FROM fleetcron.backfill WHERE state = 'running' UNION SELECT id FROM holder WHERE id IS NOT NULL) a
JOIN fleetcron.backfill b ON b.id = ANY (ARRAY[a.id])
CROSS JOIN LATERAL (
    SELECT count(*) AS open, coalesce(bool_or(r.state IS DISTINCT FROM 'open'), false) AS ended
    FROM fleetcron.backfill_run o LEFT JOIN fleetcron.run r ON r.id = ANY (ARRAY[o.run_id]) WHERE o.backfill = b.id) e
ORDER BY b.id
