-- The first schema: the tables of PostgreSQL's, under the same names. Times are microseconds since the Unix epoch, durations
-- microseconds, booleans 0 or 1, JSON is text. There is no table of gates: the one writer is the lock.

-- Counters (fence, ids: dense, never given twice, whatever is pruned), and which migrations were applied.
CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('fence', 0), ('run', 0), ('schedule', 0), ('job', 0), ('worker', 0), ('wake', 0);

CREATE TABLE job (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    dead_letter INTEGER NOT NULL,
    spec TEXT NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE schedule (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    job TEXT NOT NULL,
    shard INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 1,
    next_at INTEGER,
    prev_at INTEGER,
    judged_until INTEGER,
    owed TEXT,
    paused INTEGER NOT NULL DEFAULT 0,
    misfire TEXT,
    overlap TEXT NOT NULL,
    tenant TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    start_deadline INTEGER,
    payload TEXT NOT NULL,
    spec TEXT NOT NULL,
    tzdata TEXT NOT NULL DEFAULT '',
    error TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX schedule_due ON schedule (shard, next_at) WHERE next_at IS NOT NULL AND paused = 0;
CREATE INDEX schedule_job ON schedule (job);

-- The history: one row per run. No index on state or on anything that a completion changes.
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    nominal_at INTEGER,
    prev_at INTEGER,
    late_at INTEGER,
    expires_at INTEGER,
    started_at INTEGER,
    finished_at INTEGER,
    fence INTEGER,
    worker INTEGER,
    generation INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    handbacks INTEGER NOT NULL DEFAULT 0,
    deaths INTEGER NOT NULL DEFAULT 0,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'open'
        CHECK (state IN ('open', 'succeeded', 'failed', 'discarded', 'cancelled', 'expired', 'missed')),
    job TEXT NOT NULL,
    queue TEXT NOT NULL,
    tenant TEXT NOT NULL,
    schedule TEXT,
    key TEXT,
    gate TEXT,
    overlap TEXT,
    missed TEXT,
    payload TEXT NOT NULL,
    result TEXT,
    error TEXT,
    reason TEXT
) STRICT;
CREATE UNIQUE INDEX run_tick ON run (schedule, nominal_at, generation) WHERE schedule IS NOT NULL;
CREATE INDEX run_key ON run (key) WHERE key IS NOT NULL;

-- Narrow and hot: only what is due within the current and the next minute. Rows are inserted and deleted, never updated.
CREATE TABLE ready (
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    flags INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, priority, tenant, due_at, run_id)
) STRICT, WITHOUT ROWID;
-- Ticks that are judged if they do not start in time (flag 8), by age: what waits and is none costs this index nothing.
CREATE INDEX ready_tick ON ready (due_at, run_id) WHERE flags & 8 <> 0;

-- Narrow and cold: everything due later. Claims never look at it.
CREATE TABLE timetable (
    due_at INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    flags INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (due_at, run_id)
) STRICT, WITHOUT ROWID;

-- Due, but another run holds the gate.
CREATE TABLE parked (
    gate TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    flags INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (gate, due_at, run_id)
) STRICT, WITHOUT ROWID;

-- One heartbeat row per worker session; its death takes its leases with it. pid_started tells a pid from the same number used again.
CREATE TABLE worker (
    id INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_started TEXT,
    queues TEXT,
    jobs TEXT,
    slots INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

-- Every worker session that ever was, so that history can name it: written twice in a session's life.
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    ended TEXT
) STRICT;

CREATE TABLE node (
    node TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    roles TEXT NOT NULL,
    queues TEXT,
    slots INTEGER NOT NULL,
    version TEXT NOT NULL,
    tzdata TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Ownership. The key starts with the worker: completions and rescues both go by worker, so one index serves both.
CREATE TABLE lease (
    worker INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    gate TEXT,
    cancel INTEGER NOT NULL DEFAULT 0,
    ahead INTEGER NOT NULL DEFAULT 0, -- claimed before it was due, and not known to have started
    PRIMARY KEY (worker, run_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX lease_gate ON lease (gate) WHERE gate IS NOT NULL;

CREATE TABLE attempt (
    run_id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    worker INTEGER,
    error TEXT,
    traceback TEXT,
    PRIMARY KEY (run_id, fence)
) STRICT;

CREATE TABLE dead_letter (
    run_id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    schedule TEXT,
    tenant TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT,
    died_at INTEGER NOT NULL
) STRICT;
CREATE INDEX dead_letter_job ON dead_letter (job, run_id);

CREATE TABLE miss (
    id INTEGER PRIMARY KEY,
    schedule TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    count INTEGER NOT NULL,
    reason TEXT NOT NULL,
    policy TEXT NOT NULL,
    decided_at INTEGER NOT NULL
) STRICT;
CREATE INDEX miss_schedule ON miss (schedule, id);

CREATE TABLE dedup (
    job TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    run_id INTEGER NOT NULL,
    scope TEXT NOT NULL,
    until INTEGER,
    PRIMARY KEY (job, tenant, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX dedup_run ON dedup (run_id);

CREATE TABLE step (
    run_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (run_id, name)
) STRICT;

CREATE TABLE progress (
    run_id INTEGER PRIMARY KEY,
    done INTEGER NOT NULL,
    total INTEGER,
    note TEXT,
    at INTEGER NOT NULL
) STRICT;

-- A slice of the schedules; its term is what fences a leader's writes. Rows stay for ever, as terms only rise; those that are not active are
-- above the present number of shards.
CREATE TABLE shard (
    id INTEGER PRIMARY KEY,
    node TEXT,
    host TEXT,
    pid INTEGER,
    term INTEGER NOT NULL DEFAULT 0,
    since INTEGER,
    expires_at INTEGER NOT NULL DEFAULT -9000000000000000000,
    ticks_until INTEGER,
    active INTEGER NOT NULL DEFAULT 1
) STRICT;
INSERT INTO shard (id) VALUES (0);

-- The schedulers that live and can be nominated, each with the number of shards that it was started with: they share the shards evenly.
CREATE TABLE scheduler (node TEXT PRIMARY KEY, shards INTEGER NOT NULL, expires_at INTEGER NOT NULL, elector TEXT) STRICT;
-- elector: what it knows of its elector, also while it cannot be nominated.

-- For how long schedulers have seen the database available without a gap: rescues wait for that. One row.
CREATE TABLE watch (id INTEGER PRIMARY KEY, since INTEGER NOT NULL, seen INTEGER NOT NULL) STRICT;
INSERT INTO watch (id, since, seen) VALUES (1, -9000000000000000000, -9000000000000000000);

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    subject TEXT NOT NULL
) STRICT;

-- A run, with who holds it: leased_at and the worker are of the lease while it is open. Probes lease's key once a live worker.
CREATE VIEW run_seen AS
SELECT r.id, r.job, r.schedule, r.tenant, r.queue, r.priority, r.nominal_at, r.due_at, r.attempt, r.payload, r.result, r.error, r.key,
       r.created_at, r.started_at, r.finished_at, r.generation, r.reason, r.state,
       iif(r.state = 'open', (SELECT l.started_at FROM worker w CROSS JOIN lease l WHERE l.worker = w.id AND l.run_id = r.id), NULL) AS leased_at,
       (SELECT s.host || ':' || s.pid FROM session s
        WHERE s.id = coalesce(
            iif(r.state = 'open', (SELECT l.worker FROM worker w CROSS JOIN lease l WHERE l.worker = w.id AND l.run_id = r.id), NULL),
            r.worker)) AS worker
FROM run r;
