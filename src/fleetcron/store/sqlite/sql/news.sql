-- Tell the other processes that there is news on a channel: they see the file change, then this number. Index: meta's key.
INSERT INTO meta (key, value) VALUES ('news:' || ?1, 1) ON CONFLICT (key) DO UPDATE SET value = value + 1 RETURNING value
