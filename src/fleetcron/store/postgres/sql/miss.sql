-- Write miss records.
INSERT INTO fleetcron.miss (schedule, first, last, count, reason, policy, decided_at)
SELECT $1, m.first, m.last, m.count, m.reason, $2, coalesce($3::timestamptz, now())
FROM unnest($4::timestamptz[], $5::timestamptz[], $6::bigint[], $7::text[]) m(first, last, count, reason)
