-- Backfills that may still create runs, or have open ones; and whether there is something to do: a run has ended, there is room, or all ticks
-- were looked at and nothing is open. Index: backfill_running, backfill_run's key, backfill's id, run's id.
SELECT b.id, b.schedule, e.ended OR (b.state = 'running' AND (e.open = 0 OR (NOT b.walked AND e.open < b.max_running))) AS due
FROM (SELECT a.id, count(o.run_id) AS open,
             count(o.run_id) > count(r.id) OR coalesce(max(r.state <> 'open'), 0) AS ended
      FROM (SELECT id FROM backfill WHERE state = 'running' UNION SELECT DISTINCT backfill FROM backfill_run) a
      LEFT JOIN backfill_run o ON o.backfill = a.id LEFT JOIN run r ON r.id = o.run_id GROUP BY a.id) e
CROSS JOIN backfill b WHERE b.id = e.id
ORDER BY b.id
