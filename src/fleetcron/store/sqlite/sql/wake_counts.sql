-- How often something was added to `ready`, and how often there was other news, by channel. Index: meta's key, two ranges of it.
SELECT key, value FROM meta WHERE key = 'wake' UNION ALL SELECT key, value FROM meta WHERE key >= 'news:' AND key < 'news;'
