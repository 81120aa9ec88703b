-- A tick that its start deadline ended is a miss like any other. Index: run's id.
INSERT INTO miss (schedule, first, last, count, reason, policy, decided_at)
SELECT schedule, nominal_at, nominal_at, 1, 'expired', 'start_deadline', ?1 FROM run
WHERE id = ?2 AND schedule IS NOT NULL AND nominal_at IS NOT NULL
