-- Who changed what.
INSERT INTO fleetcron.audit (at, who, what, subject) VALUES (coalesce($1::timestamptz, now()), $2, $3, $4)
