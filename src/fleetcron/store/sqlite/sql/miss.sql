-- Write a miss record.
INSERT INTO miss (schedule, first, last, count, reason, policy, decided_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
