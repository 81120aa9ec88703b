-- Forget a job. Refused (no row) while schedules name it or runs of it are open in ready, timetable or parked.
DELETE FROM fleetcron.job j WHERE j.name = $1
    AND NOT EXISTS (SELECT 1 FROM fleetcron.schedule s WHERE s.job = j.name)
    AND NOT EXISTS (SELECT 1 FROM fleetcron.ready q WHERE q.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM fleetcron.timetable t WHERE t.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM fleetcron.parked p WHERE p.job_id = j.id)
RETURNING j.id
