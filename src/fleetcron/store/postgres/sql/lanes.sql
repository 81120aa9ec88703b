-- The lanes with something waiting, each with its first due time, at most $3: one probe of ready_pkey a lane, from the lower bound that the
-- caller knows for it, if any ($4: JSON, by queue, priority and tenant with U+001F between them). Without bounds the probe starts at the
-- lane's beginning, over whatever dead rows lie there. Lanes in which nothing waits do not count.
-- (queue, priority) pairs are found by a loose scan (g). Of each, the tenants behind the one in $5 to $7 come first, then those up to it: two
-- ranges of lane_place, read no further than the limit; the third is for pairs without such a tenant. With 10,000 lanes and a limit of 2,000
-- that is 9 to 16 ms; sorted by row_number() OVER (PARTITION BY queue, priority …) it was 45. All pairs are looked at side by side, so that
-- one with more tenants than the limit hides no other.
-- One row with nothing but the time and the version of the limits where there are none. Index: lane_place, ready_pkey, meta_pkey.
WITH RECURSIVE g(queue, priority) AS (
    (SELECT l.queue, l.priority FROM fleetcron.lane l WHERE $2::text[] IS NULL OR l.queue = ANY ($2) ORDER BY l.queue, l.priority LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority FROM g CROSS JOIN LATERAL (
        SELECT l.queue, l.priority FROM fleetcron.lane l
        WHERE (l.queue, l.priority) > (g.queue, g.priority) AND ($2::text[] IS NULL OR l.queue = ANY ($2))
        ORDER BY l.queue, l.priority LIMIT 1) n)
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now,
       (SELECT value::bigint FROM fleetcron.meta WHERE key = 'limits') AS limits, f.queue, f.priority, f.tenant, f.due_at
FROM (SELECT 1) always LEFT JOIN (
    SELECT g.queue, g.priority, t.tenant, t.due_at
    FROM g LEFT JOIN unnest($5::text[], $6::smallint[], $7::text[]) AS b(queue, priority, tenant) USING (queue, priority)
    CROSS JOIN LATERAL (
        SELECT o.tenant, q.due_at, row_number() OVER () AS nth FROM (
            (SELECT DISTINCT l.tenant FROM fleetcron.lane l
             WHERE l.queue = g.queue AND l.priority = g.priority AND l.tenant > b.tenant ORDER BY l.tenant)
            UNION ALL
            (SELECT DISTINCT l.tenant FROM fleetcron.lane l
             WHERE l.queue = g.queue AND l.priority = g.priority AND l.tenant <= b.tenant ORDER BY l.tenant)
            UNION ALL
            (SELECT DISTINCT l.tenant FROM fleetcron.lane l
             WHERE l.queue = g.queue AND l.priority = g.priority AND b.tenant IS NULL ORDER BY l.tenant)) o
        CROSS JOIN LATERAL (
            SELECT r.due_at FROM fleetcron.ready r
            WHERE r.queue = g.queue AND r.priority = g.priority AND r.tenant = o.tenant
              AND r.due_at >= coalesce(($4::jsonb ->> concat_ws(chr(31), g.queue, g.priority, o.tenant))::timestamptz, '-infinity')
            ORDER BY r.due_at LIMIT 1) q
        LIMIT $3) t
    ORDER BY t.nth LIMIT $3) f ON true
