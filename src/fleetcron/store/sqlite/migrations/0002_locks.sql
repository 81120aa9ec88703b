-- Locks for users (docs/how-to/use-a-lock.md). A row exists while a lock is held, and up to a minute longer: fences come from the one counter,
-- so nothing needs to be remembered of a name.
CREATE TABLE lock (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL, -- random for each acquisition
    fence INTEGER NOT NULL UNIQUE,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

-- The line before a lock: who has the lowest id and still says that it waits is next.
CREATE TABLE lock_waiter (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT NOT NULL UNIQUE,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX lock_line ON lock_waiter (name, id);
