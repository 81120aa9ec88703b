-- What this worker had claimed before it learned that these tenants ($2) and jobs ($3) are limited counts from now on.
-- Index: lease_pkey, run_pkey.
UPDATE fleetcron.lease l SET tenant = CASE WHEN r.tenant = ANY ($2::text[]) THEN r.tenant ELSE l.tenant END,
    job = CASE WHEN r.job = ANY ($3::text[]) THEN r.job ELSE l.job END
FROM fleetcron.run r WHERE l.worker = $1 AND r.id = l.run_id AND (r.tenant = ANY ($2::text[]) OR r.job = ANY ($3::text[]))
