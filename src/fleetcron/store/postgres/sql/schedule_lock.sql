-- One schedule by name, locked against the ticker, other edits and judgements. Index: schedule_name_key. First lock of every
-- schedule-wide transaction (order: schedule, ready, lease, run).
SELECT * FROM fleetcron.schedule WHERE name = $1 FOR UPDATE
