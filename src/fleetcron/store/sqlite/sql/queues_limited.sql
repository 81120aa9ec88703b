-- The queues that have a depth. A small table.
SELECT name, max_depth, on_full FROM queue WHERE max_depth IS NOT NULL
