-- Set a limiter. What was taken from the bucket stays taken, as far as the new bucket is deep ($10, microseconds). Index: limiter_pkey.
INSERT INTO fleetcron.limiter AS l (kind, name, rate, per, burst, max_running, weight, paused) VALUES ($2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (name, kind) DO UPDATE SET rate = excluded.rate, per = excluded.per, burst = excluded.burst, max_running = excluded.max_running,
    weight = excluded.weight, paused = excluded.paused,
    tat = least(l.tat, coalesce($1::timestamptz, clock_timestamp()) + $10::bigint * interval '1 microsecond'),
    filled_at = coalesce($1::timestamptz, clock_timestamp())
