-- Backfills: past ranges of schedules that are run (docs/how-to/backfill.md; docs/decisions/0016-backfill.md tells why so). Progress is one
-- instant, the last tick that was looked at. What has ended is counted here once, by whoever feeds the backfill.
-- `end_at` is exclusive; `ordering` asc or desc; `mode` missing, failed or all; `state` running, paused, done or cancelled; `walked`: all ticks
-- of the range were looked at.
CREATE TABLE backfill (
    id INTEGER PRIMARY KEY,
    schedule TEXT NOT NULL,
    start_at INTEGER NOT NULL,
    end_at INTEGER NOT NULL,
    ordering TEXT NOT NULL,
    mode TEXT NOT NULL,
    max_running INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'running',
    reason TEXT,
    cursor_at INTEGER,
    walked INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL,
    created INTEGER NOT NULL DEFAULT 0,
    existing INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    finished_at INTEGER
) STRICT;
CREATE INDEX backfill_running ON backfill (id) WHERE state = 'running';
INSERT INTO meta (key, value) VALUES ('backfill', 0);

-- Their runs that are open, or have ended and are not counted yet: at most max_running rows each.
CREATE TABLE backfill_run (
    backfill INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    PRIMARY KEY (backfill, run_id)
) STRICT, WITHOUT ROWID;
