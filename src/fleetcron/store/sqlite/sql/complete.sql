-- Close runs that succeeded, those whose lease this worker still holds. ?3: [[run, fence, started_at, result], …], JSON. One statement, not one
-- a run: between two of these the driver gives Python's lock away and waits for it again, with everything else that this process does.
-- CROSS JOIN keeps the loops as written. Index: lease's key, run's id.
UPDATE run SET state = 'succeeded', attempt = d.attempt, fence = d.fence, worker = ?1, started_at = d.started_at, finished_at = ?2,
    result = d.result, error = NULL, reason = NULL
FROM (
    SELECT l.run_id, l.attempt, l.fence, json_extract(j.value, '$[2]') AS started_at, json_extract(j.value, '$[3]') AS result
    FROM json_each(?3) j CROSS JOIN lease l
    WHERE l.worker = ?1 AND l.run_id = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]')) d
WHERE run.id = d.run_id
