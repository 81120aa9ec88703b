-- How often something was added to `ready`.
SELECT value FROM meta WHERE key = 'wake'
