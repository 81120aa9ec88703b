-- Delete history older than the retention, oldest ids first, a bounded batch. $3 is where the last batch stopped. Ids
-- rise with created_at: the first run that is too young ends the walk. Index: run_pkey.
WITH n AS (SELECT coalesce($1::timestamptz, now()) AS now),
old AS MATERIALIZED (
    SELECT r.id FROM fleetcron.run r, n
    WHERE r.id > $3 AND r.id < coalesce((SELECT y.id FROM fleetcron.run y WHERE y.id > $3 AND y.created_at >= n.now - $2::interval
                                         ORDER BY y.id LIMIT 1), 9223372036854775807)
      AND r.state <> 'open' AND r.finished_at < n.now - $2::interval
    ORDER BY r.id LIMIT $4),
gone AS (DELETE FROM fleetcron.run WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING id),
attempts AS (DELETE FROM fleetcron.attempt WHERE run_id = ANY (ARRAY(SELECT id FROM old))),
steps AS (DELETE FROM fleetcron.step WHERE run_id = ANY (ARRAY(SELECT id FROM old))),
progress AS (DELETE FROM fleetcron.progress WHERE run_id = ANY (ARRAY(SELECT id FROM old))),
letters AS (DELETE FROM fleetcron.dead_letter WHERE run_id = ANY (ARRAY(SELECT id FROM old)))
SELECT count(*) AS pruned, max(id) AS last FROM gone
