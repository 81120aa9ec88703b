-- A new schedule, on the shard that its id falls to; the database knows how many there are, but for those that no scheduler has opened yet.
-- No row if there is one of this name.
INSERT INTO schedule (id, name, job, next_at, prev_at, paused, misfire, overlap, tenant, queue, priority, start_deadline, payload, spec,
                      tzdata, shard, created_at, updated_at)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
        ?2 % max(?17, (SELECT count(*) FROM shard WHERE active = 1)), ?1, ?1)
ON CONFLICT (name) DO NOTHING RETURNING id
