-- Give a lock back if it is still ours. Index: lock's name.
DELETE FROM lock WHERE name = ?1 AND owner = ?2 RETURNING expires_at
