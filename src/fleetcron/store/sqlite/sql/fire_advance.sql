-- Advance a schedule, if next_at and revision are what the ticker read, and its job is there. Index: schedule's id, job.name.
UPDATE schedule SET next_at = ?4, prev_at = ?5, tzdata = ?6 WHERE id = ?1 AND revision = ?2 AND next_at = ?3 AND paused = 0
  AND EXISTS (SELECT 1 FROM job j WHERE j.name = schedule.job)
RETURNING id
