-- A limit has changed: workers read them all anew.
UPDATE meta SET value = value + 1 WHERE key = 'limits'
