-- Close a run that succeeded. Index: run's id.
UPDATE run SET state = 'succeeded', attempt = ?3, fence = ?4, worker = ?2, started_at = ?5, finished_at = ?1, result = ?6, error = NULL,
    reason = NULL
WHERE id = ?7
