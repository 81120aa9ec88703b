-- Count those of a locked backfill's runs that have ended, and forget them; returns how many are left. A statement of its own: it sees what
-- was committed before the lock was granted. A run that is gone was pruned, and so had ended. Index: backfill_run_pkey, run_pkey.
WITH it AS MATERIALIZED (
    SELECT o.run_id, coalesce(r.state, 'succeeded') AS state
    FROM fleetcron.backfill_run o LEFT JOIN fleetcron.run r ON r.id = ANY (ARRAY[o.run_id]) WHERE o.backfill = $1),
gone AS (
    DELETE FROM fleetcron.backfill_run WHERE backfill = $1 AND run_id = ANY (ARRAY(SELECT run_id FROM it WHERE state <> 'open'))),
counted AS (
    UPDATE fleetcron.backfill SET
        done = done + (SELECT count(*) FROM it WHERE state IN ('succeeded', 'discarded')),
        failed = failed + (SELECT count(*) FROM it WHERE state NOT IN ('open', 'succeeded', 'discarded'))
    WHERE id = $1 AND EXISTS (SELECT 1 FROM it WHERE state <> 'open'))
SELECT count(*) FROM it WHERE state = 'open'
