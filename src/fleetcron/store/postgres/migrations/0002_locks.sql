-- Locks for users (docs/how-to/use-a-lock.md). A row exists while a lock is held, and up to a minute longer: fences come from the one sequence,
-- so nothing needs to be remembered of a name.
CREATE TABLE fleetcron.lock (
    name text PRIMARY KEY,
    owner text NOT NULL, -- random for each acquisition
    fence bigint NOT NULL,
    host text NOT NULL,
    pid int NOT NULL,
    acquired_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
-- Makes the fence a key column: PostgreSQL lets an update of a key column wait for a share lock on the row's key, and no other update. So a
-- takeover waits for a transaction that has asked fence_ok, and the holder's renewals do not.
CREATE UNIQUE INDEX lock_fence ON fleetcron.lock (fence);

-- The line before a lock: who has the lowest id and still says that it waits is next.
CREATE TABLE fleetcron.lock_waiter (
    name text NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    owner text NOT NULL UNIQUE,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (name, id)
) WITH (fillfactor = 50);

-- Is this the fence of whoever holds the lock now? For the user's own transaction, before its writes: until it ends, nobody else gets the lock.
-- Looked at twice, as the row may have to be waited for, and the time goes on.
CREATE FUNCTION fleetcron.fence_ok(lock text, fence bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    until timestamptz;
BEGIN
    SELECT l.expires_at INTO until FROM fleetcron.lock l
        WHERE l.name = fence_ok.lock AND l.fence = fence_ok.fence AND l.expires_at > clock_timestamp()
        FOR KEY SHARE;
    RETURN coalesce(until > clock_timestamp(), false);
END $$;
