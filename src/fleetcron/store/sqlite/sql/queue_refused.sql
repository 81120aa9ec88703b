-- So many more runs were refused, because the queue was full. Index: queue's key.
UPDATE queue SET refused = refused + ?2 WHERE name = ?1
