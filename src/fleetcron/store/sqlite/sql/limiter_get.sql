-- One limiter. Index: limiter's key.
SELECT rate, burst, max_running, weight, paused FROM limiter WHERE kind = ?1 AND name = ?2
