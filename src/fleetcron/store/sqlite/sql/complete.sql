-- Close a run that succeeded. Index: run's id.
UPDATE run SET state = 'succeeded', attempt = ?1, fence = ?2, worker = ?3, started_at = ?4, finished_at = ?5, result = ?6, error = NULL,
    reason = NULL
WHERE id = ?7
