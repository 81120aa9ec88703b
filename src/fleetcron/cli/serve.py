"""`fleetcron run`: what it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import click

from fleetcron.cli.crew import Link, follow
from fleetcron.cli.embedded import FOLDER, embedded_postgres
from fleetcron.cli.logs import set_up
from fleetcron.cli.program import Command
from fleetcron.cli.settings import Settings
from fleetcron.cli.start import in_memory, run_crew, run_node, run_worker_process, start
from fleetcron.cli.values import DURATION, DURATION_OR_ZERO, comma_list
from fleetcron.durations import parse_duration
from fleetcron.node import ROLES, NodeOptions

FLEET_OPTIONS = {
    "schema": (None, "The PostgreSQL schema that everything lives in; default: fleetcron."),
    "lease": (DURATION, "How long a worker owns what it runs without a heartbeat; default: 15s."),
    "heartbeat": (DURATION, "How often a worker renews its lease; default: a third of it."),
    "election_ttl": (DURATION, "How long a leader leads without renewing; default: 5s."),
    "shards": (int, "Into how many parts the schedules are split; default: 1."),
    "elector": (None, "Who nominates leaders: database (default), etcd://…, zk://… or redis://…."),
    "direct_url": (None, "The database past PgBouncer, for wake-ups."),
    "pgbouncer": (bool, "The URL goes through PgBouncer in transaction mode."),
    "max_payload": (None, "Longest payload; default: 1MiB."),
    "max_result": (None, "Longer results are cut; default: 256KiB."),
    "max_error": (None, "Longer errors are cut; default: 64KiB."),
    "priority_ageing": (DURATION_OR_ZERO, "How much waiting outweighs one step of priority; default: 1m."),
    "retention": (DURATION, "How long ended runs are kept; default: 30d."),
    "auto_migrate": (bool, "Upgrade an older schema at the start."),
}
"""Every option of `Fleet` but the URL."""


def _fleet_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, (kind, text) in reversed(FLEET_OPTIONS.items()):
        flag = f"--{name.replace('_', '-')}"
        if kind is bool:
            command = click.option(flag, name, is_flag=True, default=None, help=text)(command)
        else:
            command = click.option(flag, name, type=kind, help=text)(command)
    return command


@click.command(cls=Command)
@click.option("--role", "roles", default=",".join(ROLES), show_default=True, help="What this node does.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Runs at a time, in each worker process.",
)
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes.")
@click.option("--queue", "queues", multiple=True, metavar="A,B", help="Only runs of these queues; default: all.")
@click.option(
    "--drain",
    type=DURATION_OR_ZERO,
    default="30s",
    show_default=True,
    help="How long running work may go on after SIGTERM.",
)
@click.option(
    "--log", type=click.Choice(["human", "json"]), help="Log lines for people (default) or machines, on stderr."
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--embedded-postgres",
    "folder",
    is_flag=False,
    flag_value=FOLDER,
    metavar="[DIR]",
    help=f"Start a PostgreSQL server with this node, and stop it with it; its data is kept in DIR, else in ./{FOLDER}.",
)
@click.option("--child", hidden=True, help="Set by a node for its worker processes.")
@_fleet_options
@click.pass_obj
def run(
    settings: Settings,
    /,
    *,
    roles: str,
    concurrency: int,
    processes: int,
    queues: tuple[str, ...],
    drain: str,
    log: str | None,
    log_level: str,
    folder: str | None,
    child: str | None,
    **options: Any,
) -> None:
    """Start a node. It says when it is ready, logs to stderr, drains on SIGTERM or Ctrl-C, ends at once on a second."""
    link = None if child is None else Link.read(child)
    if link is not None:
        follow(link)  # before anything that takes time: from here on this process does not outlive its parent
    plan = NodeOptions(
        roles=_roles(roles),
        slots=concurrency,
        queues=comma_list(queues),
        drain=parse_duration(drain, name="--drain", allow_zero=True),
        listed=link is None,
    )
    if folder is not None and settings.url is not None:
        raise click.UsageError("--embedded-postgres brings its own database; leave --url out")
    if processes > 1 and "worker" not in plan.roles:
        raise click.UsageError("--processes is the number of worker processes; this node has no worker role")
    fleet = settings.fleet(**options)
    set_up(log, log_level)
    with contextlib.ExitStack() as stack:
        if folder is not None:
            settings.url = stack.enter_context(embedded_postgres(folder))
            fleet.configure(settings.url)
        if link is not None:
            start(run_worker_process(fleet, plan, link))
        elif processes == 1:
            start(run_node(fleet, plan, settings))
        elif in_memory(fleet.options.url):
            raise click.UsageError("--processes: a database in memory belongs to one process; name a file")
        else:
            words = options | {
                "url": settings.url,
                "app": settings.app,
                "role": "worker",
                "concurrency": concurrency,
                "queue": ",".join(queues) or None,
                "drain": drain,
                "log": log,
                "log_level": log_level,
            }
            start(run_crew(fleet, plan, settings, processes, words))


def _roles(text: str) -> tuple[str, ...]:
    asked = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if unknown := [role for role in asked if role not in ROLES]:
        raise click.BadParameter(
            f"there is no role {unknown[0]!r}: this version has {', '.join(ROLES)}", param_hint="--role"
        )
    if not asked:
        raise click.BadParameter(f"none given; there are {', '.join(ROLES)}", param_hint="--role")
    return tuple(role for role in ROLES if role in asked)
