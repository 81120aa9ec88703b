-- The first due time waiting in a lane: the lower bound of what can be unstarted there. Index: ready_pkey.
SELECT min(due_at) FROM fleetcron.ready WHERE queue = $1 AND priority = $2 AND tenant = $3
