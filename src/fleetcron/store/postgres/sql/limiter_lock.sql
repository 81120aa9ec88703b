-- Lock the limiters of these tenants, in order, but for those that another claim has locked just now: they are passed over, not waited for.
-- First statement of a limited claim; what the limits leave is counted in the next (limiter_room.sql). Index: limiter_pkey.
SELECT name FROM fleetcron.limiter WHERE kind = 'tenant' AND name = ANY ($1::text[]) AND NOT paused ORDER BY name FOR UPDATE SKIP LOCKED
