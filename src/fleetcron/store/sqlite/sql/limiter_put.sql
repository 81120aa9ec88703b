-- Set a limiter. What was taken from the bucket stays taken, as far as the new bucket is deep (?10). Index: limiter's key.
INSERT INTO limiter (kind, name, rate, per, burst, max_running, weight, paused) VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (name, kind) DO UPDATE SET rate = excluded.rate, per = excluded.per, burst = excluded.burst, max_running = excluded.max_running,
    weight = excluded.weight, paused = excluded.paused, tat = min(tat, ?1 + ?10), filled_at = ?1
