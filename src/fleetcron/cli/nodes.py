"""Who is there: nodes and leaders."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import click

from fleetcron.cli import output
from fleetcron.cli.program import Group
from fleetcron.cli.settings import Settings, with_fleet
from fleetcron.fleet import Fleet
from fleetcron.model import Node


@click.group(cls=Group)
def node() -> None:
    """Live nodes."""


@node.command("list")
@with_fleet
async def node_list(fleet: Fleet, settings: Settings) -> None:
    """Live nodes with their worker processes."""
    found = await fleet.nodes()
    columns = ("node", "host", "pid", "workers", "roles", "queues", "slots", "running", "version", "tzdata", "started")
    rows = (
        (
            n.node[:12],
            n.host,
            n.pid,
            n.worker_pids,
            n.roles,
            n.queues or "all",
            n.slots,
            n.running,
            n.version,
            n.tzdata,
            n.started_at,
        )
        for n in found
    )
    output.emit(settings, found, lambda: output.table(columns, rows, empty="no live nodes"))


@click.group(cls=Group)
def leader() -> None:
    """Who leads each shard."""


@leader.command("list")
@with_fleet
async def leader_list(fleet: Fleet, settings: Settings) -> None:
    """Each shard with its leader, and until when its ticks are written. Below them each scheduler with its elector, unless
    the database elects. As JSON the leaders alone: electors are in "node list"."""
    found, nodes, now = await fleet.leaders(), await fleet.nodes(), await fleet.store.now()

    def human() -> None:
        columns = ("shard", "node", "host", "pid", "term", "since", "ticks until", "ahead")
        rows = (
            (x.shard, x.node and x.node[:12], x.host, x.pid, x.term, x.since, x.ticks_until, _ahead(x.ticks_until, now))
            for x in found
        )
        output.table(columns, rows, empty="no shards yet: no scheduler has ever run")
        _electors(nodes)

    output.emit(settings, found, human)


def _ahead(until: datetime | None, now: datetime) -> timedelta | None:
    """By the database's clock, to the second; negative: ticks are late."""
    return None if until is None else timedelta(seconds=round((until - now).total_seconds()))


def _electors(nodes: Sequence[Node]) -> None:
    standing = [(node, node.elector) for node in nodes if node.elector is not None]
    if all(state.where is None for _, state in standing):
        return
    click.echo()
    columns = ("scheduler", "host", "pid", "elector", "at", "reached", "since", "error", "tries every")
    rows = ((n.node[:12], n.host, n.pid, s.kind, s.where, s.reached, s.since, s.error, s.retry_in) for n, s in standing)
    output.table(columns, rows, empty="")
