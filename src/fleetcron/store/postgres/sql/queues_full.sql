-- The queues that are full now; without limited queues, nothing is counted. Index: ready_pkey.
SELECT q.name FROM fleetcron.queue q
WHERE q.max_depth IS NOT NULL AND q.max_depth <=
    (SELECT count(*) FROM (SELECT 1 FROM fleetcron.ready r
                           WHERE r.queue = q.name AND r.due_at <= coalesce($1::timestamptz, now()) LIMIT q.max_depth) r)
  + (SELECT count(*) FROM (SELECT 1 FROM fleetcron.parked p WHERE p.queue = q.name LIMIT q.max_depth) p)
