-- Tell the other processes that something was added to `ready`: they see the file change, then this number.
UPDATE meta SET value = value + 1 WHERE key = 'wake' RETURNING value
