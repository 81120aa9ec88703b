"""Limits: tenants and queues."""

from __future__ import annotations

from typing import Any

import click

from fleetcron.cli import output
from fleetcron.cli.program import Group
from fleetcron.cli.settings import Settings, with_fleet
from fleetcron.fleet import Fleet
from fleetcron.model import Queue, Tenant

_LIFT = "none"


class Limit(click.ParamType[Any]):
    """A whole number, or "none" to lift the limit."""

    name = "N|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).lower()
        if text == _LIFT:
            return _LIFT
        if not text.isdecimal():
            self.fail(f'{value!r}: expected a whole number, or "none" to lift the limit', param, ctx)
        return int(text)


LIMIT = Limit()


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """What was typed; None where a limit is to be lifted."""
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        raise click.UsageError("nothing to set: give at least one option (--help names them)")
    return {name: None if str(value).lower() == _LIFT else value for name, value in given.items()}


@click.group(cls=Group)
def tenant() -> None:
    """Limits of tenants."""


@tenant.command("set")
@click.argument("name")
@click.option("--rate", metavar="N/TIME|none", help="Starts in a time, such as 100/m or 5/10s.")
@click.option("--burst", type=LIMIT, help="How many of them may come at once; default: what grows in a second.")
@click.option("--max-running", type=LIMIT, help="How many run at one time, over the whole fleet.")
@click.option("--weight", type=int, help="How many turns it has where others have one; default: 1.")
@click.option("--paused/--no-paused", default=None, help="Start none of its runs; start them again.")
@with_fleet
async def tenant_set(fleet: Fleet, settings: Settings, /, name: str, **options: Any) -> None:
    """Limit a tenant. What is not given stays as it is; "none" lifts a limit."""
    changed = await fleet.set_tenant(name, **_given(options))
    output.emit(settings, changed, lambda: _tenants([changed]))


@tenant.command("list")
@with_fleet
async def tenant_list(fleet: Fleet, settings: Settings) -> None:
    """Tenants that have limits, with how many of their runs workers hold."""
    found = await fleet.tenants()
    output.emit(settings, found, lambda: _tenants(found))


def _tenants(found: list[Tenant]) -> None:
    columns = ("tenant", "rate", "burst", "max running", "weight", "paused", "running")
    rows = ((t.name, t.rate, t.burst, t.max_running, t.weight, t.paused, t.running) for t in found)
    output.table(columns, rows, empty="no tenant has limits")


@click.group(cls=Group)
def queue() -> None:
    """Limits of queues."""


@queue.command("set")
@click.argument("name")
@click.option("--max-depth", type=LIMIT, help="How many runs that are due may wait in it.")
@click.option("--on-full", type=click.Choice(["reject", "wait"]), help="What a submit to a full queue does.")
@click.option("--paused/--no-paused", default=None, help="Start none of its runs; start them again.")
@with_fleet
async def queue_set(fleet: Fleet, settings: Settings, /, name: str, **options: Any) -> None:
    """Limit a queue. What is not given stays as it is; "none" lifts a limit."""
    changed = await fleet.set_queue(name, **_given(options))
    output.emit(settings, changed, lambda: _queues([changed]))


@queue.command("list")
@with_fleet
async def queue_list(fleet: Fleet, settings: Settings) -> None:
    """Queues that have limits, or something waiting, with their depth, and how many runs they were too full to take."""
    found = await fleet.queues()
    output.emit(settings, found, lambda: _queues(found))


def _queues(found: list[Queue]) -> None:
    columns = ("queue", "depth", "max depth", "on full", "refused", "paused")
    rows = (
        (q.name, q.depth, q.max_depth, q.on_full if q.max_depth is not None else None, q.refused, q.paused)
        for q in found
    )
    output.table(columns, rows, empty="no queue has limits, and nothing waits")
