"""Locks that are held."""

from __future__ import annotations

import click

from fleetcron.cli import output
from fleetcron.cli.program import Group
from fleetcron.cli.settings import Settings, with_fleet
from fleetcron.fleet import Fleet


@click.group(cls=Group)
def lock() -> None:
    """Locks that are held."""


@lock.command("list")
@with_fleet
async def lock_list(fleet: Fleet, settings: Settings) -> None:
    """Locks that are held: by whom, under which fence, until when if they are not renewed, and how many wait."""
    found = await fleet.locks()
    columns = ("lock", "fence", "owner", "acquired", "expires", "waiters")
    rows = ((x.name, x.fence, x.owner, x.acquired_at, x.expires_at, x.waiters) for x in found)
    output.emit(settings, found, lambda: output.table(columns, rows, empty="no locks are held"))
