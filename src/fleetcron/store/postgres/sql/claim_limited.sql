-- A claim for lanes of limited tenants: see the function, in migrations/0003_limits.sql.
SELECT run_id, fence, attempt, job, payload, date_part('epoch', due_at) AS due, late, schedule, nominal_at, tenant, queue, priority, key, gate,
       overlap, expires_at, late_at, missed, generation, deaths, prev_at, date_part('epoch', now) AS now
FROM fleetcron.claim_limited($1, $2, $3::text[], $4::smallint[], $5::text[], $6::timestamptz[], $7::int[], $8, $9::int[])
