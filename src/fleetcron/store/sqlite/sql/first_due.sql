-- The first due time waiting in a lane: the lower bound of what can be unstarted there. Index: ready's key.
SELECT min(due_at) FROM ready WHERE queue = ?1 AND priority = ?2 AND tenant = ?3
