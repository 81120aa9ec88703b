-- Lock the limiters of these jobs, in name order and before any gate: what they leave is counted in the next statement. Index: limiter_pkey.
SELECT name FROM fleetcron.limiter WHERE kind = 'job' AND name = ANY ($1::text[]) ORDER BY name FOR UPDATE
