-- Which jobs a worker session can run (JSON); NULL: all.
UPDATE worker SET jobs = ?2 WHERE id = ?1
