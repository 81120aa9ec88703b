-- Names of the migrations already applied, oldest first.
SELECT key FROM fleetcron.meta WHERE key LIKE 'migration:%' ORDER BY key
