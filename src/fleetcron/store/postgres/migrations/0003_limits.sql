-- Limits: of tenants and jobs (a rate, a number of runs at once) and of queues (a depth). docs/decisions/0014-limits.md tells why so.
-- One row for each tenant or job that has ever been limited, and a mutex for the claims that it limits. How many run is not kept here but
-- counted in `lease`, which cannot leak; the bucket of the rate is one instant, `tat`, at which it will be full again.
CREATE TABLE fleetcron.limiter (
    kind text NOT NULL, -- tenant or job
    name text NOT NULL,
    rate text, -- as it was given
    per bigint, -- microseconds in which one token grows; NULL: no rate
    burst int, -- as it was given; NULL: what grows in a second
    max_running int,
    weight int NOT NULL DEFAULT 1,
    paused boolean NOT NULL DEFAULT false,
    tat timestamptz NOT NULL DEFAULT '-infinity',
    filled_at timestamptz NOT NULL DEFAULT '-infinity', -- when the bucket was last found full: older tokens cannot be given back
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);

CREATE TABLE fleetcron.queue (
    name text PRIMARY KEY,
    max_depth int,
    on_full text NOT NULL DEFAULT 'reject',
    paused boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- Rises with every change of a limit, so that workers, who ask each second, read the rest only then.
INSERT INTO fleetcron.meta (key, value) VALUES ('limits', '0');

-- Set on leases of limited tenants only.
ALTER TABLE fleetcron.lease ADD COLUMN tenant text;
CREATE INDEX lease_tenant ON fleetcron.lease (tenant) WHERE tenant IS NOT NULL;

-- A depth counts what waits for a gate, too.
CREATE INDEX parked_queue ON fleetcron.parked (queue);
