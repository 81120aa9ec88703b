-- A claim for lanes of limited tenants: see the function, in migrations/0003_limits.sql.
SELECT * FROM fleetcron.claim_limited($1, $2, $3::text[], $4::smallint[], $5::text[], $6::timestamptz[], $7::int[], $8, $9::int[])
