-- History older than ?1, oldest ids first, a bounded batch above the id ?2, where the last one stopped. Ids rise with created_at, so the
-- first run that is too young ends the walk. Index: run's id.
SELECT id FROM run
WHERE id > ?2 AND id < coalesce((SELECT id FROM run WHERE id > ?2 AND created_at >= ?1 ORDER BY id LIMIT 1), 9223372036854775807)
  AND state <> 'open' AND finished_at < ?1
ORDER BY id LIMIT ?3
