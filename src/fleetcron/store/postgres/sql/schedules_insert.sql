-- New schedules, each on the shard that its id falls to; the database knows how many there are, but for those that no scheduler has opened
-- yet. The names come back that were free: another process may have made one of them meanwhile. Index: schedule_name_key.
INSERT INTO fleetcron.schedule (id, name, job, next_at, prev_at, paused, misfire, overlap, tenant, queue, priority, start_deadline,
                                payload, spec, tzdata, shard)
OVERRIDING SYSTEM VALUE
SELECT i.id, i.name, i.job, i.next_at, i.prev_at, i.paused, i.misfire, i.overlap, i.tenant, i.queue, i.priority, i.start_deadline,
       i.payload::json, i.spec::json, i.tzdata, (i.id % s.shards)::int
FROM (SELECT nextval('fleetcron.schedule_id_seq') AS id, u.*
      FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::boolean[], $6::text[], $7::text[], $8::text[], $9::text[],
                  $10::smallint[], $11::interval[], $12::text[], $13::text[], $14::text[])
           AS u(name, job, next_at, prev_at, paused, misfire, overlap, tenant, queue, priority, start_deadline, payload, spec, tzdata)) i,
     (SELECT greatest($15, (SELECT count(*) FROM fleetcron.shard WHERE active)) AS shards) s
ORDER BY i.name  -- two callers with the same names wait for each other in one order
ON CONFLICT (name) DO NOTHING RETURNING name
