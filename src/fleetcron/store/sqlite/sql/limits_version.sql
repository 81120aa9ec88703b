-- The version of the limits. Index: meta's key.
SELECT value FROM meta WHERE key = 'limits'
