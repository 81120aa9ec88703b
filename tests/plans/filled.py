"""A database with 50,000 rows in `ready`, `schedule` and `run` (and more), filled behind the planner's back."""

from __future__ import annotations

from typing import Any

ROWS, FEWER = 50_000, 20_000
READY = range(1, ROWS + 1)
TIMETABLE, LEASED, ENDED = (range(ROWS + FEWER * i + 1, ROWS + FEWER * (i + 1) + 1) for i in range(3))
"""Run ids by where they are. Of READY the first tenth is due."""
LANES = [("default", 5, f"t{i}") for i in range(20)]
WORKERS = 50
DEAD = 50
"""The last worker's time is past."""
BACKFILLS, PLACES = 20, 100
"""Backfills that go on, each with so many open runs, of LEASED."""
FENCE = 1_000_000
"""A lease's fence is its run's id and this."""

HOT_TABLES = ("run", "ready", "timetable", "lease", "schedule")
NO_AUTOVACUUM = """
DO $$ DECLARE it regclass; BEGIN
    FOR it IN SELECT oid FROM pg_class WHERE relnamespace = 'fleetcron'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', it);
    END LOOP; END $$"""

FILL = f"""
SET LOCAL synchronous_commit = off;
INSERT INTO fleetcron.job (name, queue, priority, max_attempts, dead_letter, spec) VALUES ('work', 'default', 5, 3, true, '{{}}');
INSERT INTO fleetcron.shard (id, node, term, expires_at) VALUES (0, 'leader', 7, 'infinity')
    ON CONFLICT (id) DO UPDATE SET node = 'leader', term = 7, expires_at = 'infinity';
INSERT INTO fleetcron.lane (queue, priority, tenant) SELECT 'default', 5, 't' || i FROM generate_series(0, 19) i;
INSERT INTO fleetcron.worker (node, host, pid, slots, started_at, heartbeat_at, expires_at)
    SELECT 'n' || i, 'h', i, 1000, now(), now(), now() + CASE WHEN i < {WORKERS} THEN interval '1 hour' ELSE interval '-1 hour' END
    FROM generate_series(1, {WORKERS}) i;
INSERT INTO fleetcron.session (id, node, host, pid, started_at) SELECT id, node, host, pid, started_at FROM fleetcron.worker;
INSERT INTO fleetcron.schedule (name, job, next_at, misfire, overlap, tenant, queue, priority, payload, spec)
    SELECT 's' || i, 'work', date_trunc('minute', now()) + i % 1440 * interval '1 minute', 'fire_once', 'allow', 't' || i % 20, 'default', 5,
           '{{}}', '{{}}'
    FROM generate_series(1, {ROWS}) i;

INSERT INTO fleetcron.run (id, due_at, nominal_at, late_at, priority, job, queue, tenant, schedule, payload)
    SELECT i, due, due, due + interval '1 minute', 5, 'work', 'default', 't' || i % 20, 's' || i % 100, '{{"n": 1}}'
    FROM (SELECT i, now() + (i - {ROWS // 10}) * interval '1 millisecond' AS due FROM generate_series({READY[0]}, {READY[-1]}) i) d;
INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, flags)
    SELECT queue, priority, tenant, due_at, id, 1, 8 FROM fleetcron.run WHERE id BETWEEN {READY[0]} AND {READY[-1]};

INSERT INTO fleetcron.run (id, due_at, nominal_at, late_at, priority, job, queue, tenant, schedule, payload)
    SELECT i, due, due, due + interval '1 minute', 5, 'work', 'default', 't' || i % 20, 's' || i % 100, '{{"n": 1}}'
    FROM (SELECT i, now() + interval '10.00005 seconds' + (i - {TIMETABLE[0]}) * interval '0.2 seconds' AS due
          FROM generate_series({TIMETABLE[0]}, {TIMETABLE[-1]}) i) d;
INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id, flags)
    SELECT due_at, id, queue, priority, tenant, 1, 8 FROM fleetcron.run WHERE id BETWEEN {TIMETABLE[0]} AND {TIMETABLE[-1]};

INSERT INTO fleetcron.run (id, due_at, priority, job, queue, tenant, key, payload)
    SELECT i, now(), 5, 'work', 'default', 't' || i % 20, 'k' || i, '{{"n": 1}}' FROM generate_series({LEASED[0]}, {LEASED[-1]}) i;
INSERT INTO fleetcron.dedup (job, tenant, key, run_id, scope)
    SELECT job, tenant, key, id, 'finished' FROM fleetcron.run WHERE id BETWEEN {LEASED[0]} AND {LEASED[-1]};
INSERT INTO fleetcron.lease (worker, run_id, fence, attempt, started_at, gate)
    SELECT 1 + (i - {LEASED[0]}) / {FEWER // WORKERS}, i, i + {FENCE}, 1, now(), CASE WHEN i % 10 = 0 THEN 'g' || i END
    FROM generate_series({LEASED[0]}, {LEASED[-1]}) i;

INSERT INTO fleetcron.run (id, created_at, due_at, nominal_at, priority, job, queue, tenant, schedule, payload, state,
                           finished_at, started_at)
    SELECT i, now() - interval '90 days', now() - interval '90 days', now() - interval '90 days' + i * interval '1 minute', 5,
           'work', 'default', '',
           's' || i % 100, '{{}}', 'succeeded', now() - interval '90 days', now() - interval '90 days'
    FROM generate_series({ENDED[0]}, {ENDED[-1]}) i;
INSERT INTO fleetcron.dead_letter (run_id, job, tenant, attempts, died_at)
    SELECT i, 'work', '', 3, now() FROM generate_series({ENDED[0]}, {ENDED[-1]}, 10) i;
UPDATE fleetcron.run SET state = 'failed' WHERE id IN (SELECT run_id FROM fleetcron.dead_letter);
INSERT INTO fleetcron.parked (gate, due_at, run_id, queue, priority, tenant, job_id)
    SELECT 'p' || i % 1000, now(), i, 'default', 5, '', 1 FROM generate_series({ENDED[0]}, {ENDED[-1]}, 5) i;
INSERT INTO fleetcron.backfill (schedule, start_at, end_at, ordering, mode, max_running, state, total, created_at)
    SELECT 's' || i, now() - interval '9 days', now(), 'asc', 'missing', {PLACES}, CASE WHEN i <= {BACKFILLS} THEN 'running' ELSE 'done' END,
           9, now()
    FROM generate_series(1, 1000) i;
INSERT INTO fleetcron.backfill_run (backfill, run_id)
    SELECT 1 + i / {PLACES}, {LEASED[0]} + i FROM generate_series(0, {BACKFILLS * PLACES - 1}) i;
SELECT setval('fleetcron.fence', 10 * {FENCE});
SELECT setval(pg_get_serial_sequence('fleetcron.run', 'id'), 10 * {ROWS});
"""


async def fill(connection: Any) -> None:
    """Fill the tables; what the planner knows of them stays as it was."""
    async with connection.transaction():
        await connection.execute(FILL)
