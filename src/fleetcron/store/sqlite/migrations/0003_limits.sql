-- Limits: of tenants and jobs (a rate, a number of runs at once) and of queues (a depth). docs/decisions/0014-limits.md tells why so.
-- One row for each tenant or job that has ever been limited. How many run is not kept here but counted in `lease`, which cannot leak; the
-- bucket of the rate is one instant, `tat`, at which it will be full again. `per`: microseconds in which one token grows. `filled_at`: when
-- the bucket was last found full; older tokens cannot be given back. `burst` NULL: what grows in a second.
CREATE TABLE limiter (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    rate TEXT,
    per INTEGER,
    burst INTEGER,
    max_running INTEGER,
    weight INTEGER NOT NULL DEFAULT 1,
    paused INTEGER NOT NULL DEFAULT 0,
    tat INTEGER NOT NULL DEFAULT 0,
    filled_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue (
    name TEXT PRIMARY KEY,
    max_depth INTEGER,
    on_full TEXT NOT NULL DEFAULT 'reject',
    paused INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Rises with every change of a limit, so that workers, who ask each second, read the rest only then.
INSERT INTO meta (key, value) VALUES ('limits', 0);

-- Set on leases of limited tenants only.
ALTER TABLE lease ADD COLUMN tenant TEXT;
CREATE INDEX lease_tenant ON lease (tenant) WHERE tenant IS NOT NULL;
-- Set on leases of limited jobs only, when they are let in.
ALTER TABLE lease ADD COLUMN job TEXT;
CREATE INDEX lease_job ON lease (job) WHERE job IS NOT NULL;

-- A depth counts what waits for a gate, too.
CREATE INDEX parked_queue ON parked (queue);
