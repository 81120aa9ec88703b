-- Forget a job. Refused (no row) while schedules name it or runs of it are open: a retry or rescue of a leased one needs its job, too.
DELETE FROM fleetcron.job j WHERE j.name = $1
    AND NOT EXISTS (SELECT 1 FROM fleetcron.schedule s WHERE s.job = j.name)
    AND NOT EXISTS (SELECT 1 FROM fleetcron.ready q WHERE q.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM fleetcron.timetable t WHERE t.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM fleetcron.parked p WHERE p.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM fleetcron.lease l JOIN fleetcron.run r ON r.id = l.run_id WHERE r.job = j.name)
RETURNING j.id
