-- Backfills: past ranges of schedules that are run (docs/how-to/backfill.md; docs/decisions/0016-backfill.md tells why so). Progress is one
-- instant, the last tick that was looked at. What has ended is counted here once, by whoever feeds the backfill.
CREATE TABLE fleetcron.backfill (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schedule text NOT NULL,
    start_at timestamptz NOT NULL,
    end_at timestamptz NOT NULL, -- exclusive
    ordering text NOT NULL, -- asc or desc
    mode text NOT NULL, -- missing, failed or all
    max_running int NOT NULL,
    state text NOT NULL DEFAULT 'running', -- running, paused, done or cancelled
    reason text,
    cursor_at timestamptz,
    walked boolean NOT NULL DEFAULT false, -- all ticks of the range were looked at
    total bigint NOT NULL,
    created bigint NOT NULL DEFAULT 0,
    existing bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    finished_at timestamptz
) WITH (fillfactor = 50);
CREATE INDEX backfill_running ON fleetcron.backfill (id) WHERE state = 'running';

-- Their runs that are open, or have ended and are not counted yet: at most max_running rows each, so that `run` needs no column for them.
CREATE TABLE fleetcron.backfill_run (
    backfill bigint NOT NULL,
    run_id bigint NOT NULL,
    PRIMARY KEY (backfill, run_id)
);
