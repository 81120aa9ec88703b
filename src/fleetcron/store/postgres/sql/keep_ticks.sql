-- Late ticks that run after all, told what was judged away in their favour. Those not started within $4 (a lease) are judged once more, so
-- that two judgements of a long outage never leave two late runs. One-shots keep having no late_at.
UPDATE fleetcron.run r SET late_at = CASE WHEN r.late_at IS NOT NULL THEN coalesce($1::timestamptz, now()) + $4::interval END, missed = k.missed::json
FROM unnest($2::bigint[], $3::text[]) k(id, missed) WHERE r.id = ANY (ARRAY[k.id])
