"""Who is there: nodes and leaders."""

from __future__ import annotations

import click

from fleetcron.cli import output
from fleetcron.cli.program import Group
from fleetcron.cli.settings import Settings, with_fleet
from fleetcron.fleet import Fleet


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
    """Each shard with its leader, and until when its ticks are written."""
    found = await fleet.leaders()
    columns = ("shard", "node", "host", "pid", "term", "since", "ticks until")
    rows = ((x.shard, x.node and x.node[:12], x.host, x.pid, x.term, x.since, x.ticks_until) for x in found)
    output.emit(settings, found, lambda: output.table(columns, rows, empty="no shards yet: no scheduler has ever run"))
