-- One limiter, locked. Index: limiter_pkey.
SELECT rate, burst, max_running, weight, paused FROM fleetcron.limiter WHERE kind = $1 AND name = $2 FOR UPDATE
