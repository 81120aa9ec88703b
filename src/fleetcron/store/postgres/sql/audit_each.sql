-- Who changed what, of several.
INSERT INTO fleetcron.audit (at, who, what, subject) SELECT coalesce($1::timestamptz, now()), $2, $3, s FROM unnest($4::text[]) s
