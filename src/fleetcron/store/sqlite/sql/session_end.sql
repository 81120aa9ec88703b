-- Worker sessions ended: "stopped" or "died".
UPDATE session SET ended_at = ?1, ended = ?3 WHERE id IN (SELECT value FROM json_each(?2))
