-- A new schedule, on the shard that its id falls to; the database knows how many there are, but for those that no scheduler has opened yet.
-- No row if another process made it in the meantime.
WITH new AS (SELECT nextval('fleetcron.schedule_id_seq') AS id)
INSERT INTO fleetcron.schedule (id, name, job, next_at, prev_at, paused, misfire, overlap, tenant, queue, priority, start_deadline,
                                payload, spec, tzdata, shard)
OVERRIDING SYSTEM VALUE
SELECT new.id, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::json, $13::json, $14,
       (new.id % greatest($15, (SELECT count(*) FROM fleetcron.shard WHERE active)))::int FROM new
ON CONFLICT (name) DO NOTHING RETURNING id
