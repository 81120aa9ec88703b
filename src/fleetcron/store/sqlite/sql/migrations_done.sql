-- Names of the migrations already applied, oldest first. Index: meta's key.
SELECT key FROM meta WHERE key LIKE 'migration:%' ORDER BY key
