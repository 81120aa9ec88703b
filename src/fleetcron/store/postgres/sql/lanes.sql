-- The lanes with something waiting, each with its first due time: one probe of ready_pkey a lane, from the lower bound ($4 to $7) that the
-- caller knows for it, if any. Without bounds the probe starts at the lane's beginning, over whatever dead rows lie there.
-- Index: lane_pkey, ready_pkey.
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now, l.queue, l.priority, l.tenant, q.due_at
FROM (SELECT * FROM fleetcron.lane WHERE $2::text[] IS NULL OR queue = ANY ($2) ORDER BY queue, priority, tenant LIMIT $3) l
CROSS JOIN LATERAL (
    SELECT r.due_at FROM fleetcron.ready r
    WHERE r.queue = l.queue AND r.priority = l.priority AND r.tenant = l.tenant AND r.due_at >= coalesce(
        (SELECT k.floor FROM unnest($4::text[], $5::smallint[], $6::text[], $7::timestamptz[]) k(queue, priority, tenant, floor)
         WHERE k.queue = l.queue AND k.priority = l.priority AND k.tenant = l.tenant), '-infinity')
    ORDER BY r.due_at LIMIT 1) q
