-- Forget a job. No row while schedules name it or runs of it wait or are leased. Index: job.name, schedule_job; a rare full look at what waits.
DELETE FROM job WHERE name = ?1
    AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.job = job.name)
    AND NOT EXISTS (SELECT 1 FROM ready q WHERE q.job_id = job.id)
    AND NOT EXISTS (SELECT 1 FROM timetable t WHERE t.job_id = job.id)
    AND NOT EXISTS (SELECT 1 FROM parked p WHERE p.job_id = job.id)
    AND NOT EXISTS (SELECT 1 FROM lease l JOIN run r ON r.id = l.run_id WHERE r.job = job.name)
RETURNING id
