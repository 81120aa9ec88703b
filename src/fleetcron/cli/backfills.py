"""Backfills: begin one and watch it, look, pause, resume, cancel."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any, get_args
from zoneinfo import ZoneInfo

import click

from fleetcron.cli import output
from fleetcron.cli.program import Command
from fleetcron.cli.settings import Settings, with_fleet
from fleetcron.cli.values import MOMENT_OR_AGO
from fleetcron.clock import sleep
from fleetcron.fleet import Fleet
from fleetcron.model import Backfill, BackfillMode, BackfillOrder
from fleetcron.triggers import Cron, Trigger

_EVERY = 0.25
"""Seconds between looks while it is watched."""


class MomentOrDay(click.ParamType[Any]):
    """What --since takes, and a day alone: its first instant where the schedule is at home."""

    name = "time|day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | date:
        try:
            return datetime.strptime(value, "%Y-%m-%d").date()  # noqa: DTZ007  # a day has no zone yet
        except (TypeError, ValueError):
            return MOMENT_OR_AGO.convert(value, param, ctx)


WHEN = MomentOrDay()


@click.command(cls=Command)
@click.argument("schedule")
@click.option(
    "--from",
    "start",
    type=WHEN,
    required=True,
    help='RFC 3339, or "7d" ago, or a day (2026-03-01) in the zone of SCHEDULE.',
)
@click.option("--to", "end", type=WHEN, required=True, help="The same; not part of the range. Cut to now.")
@click.option(
    "--max-running", type=int, default=1, show_default=True, help="How many of its runs wait or run at a time."
)
@click.option(
    "--order",
    type=click.Choice(get_args(BackfillOrder)),
    default="asc",
    show_default=True,
    help="Oldest or newest first.",
)
@click.option(
    "--mode",
    type=click.Choice(get_args(BackfillMode)),
    default="missing",
    show_default=True,
    help="Ticks that nothing ran for, those that failed, or all, beside the old runs.",
)
@click.option("--dry-run", is_flag=True, help="Only say how many runs it would create.")
@click.option(
    "--wait/--no-wait", "waits", default=None, help="Wait for its end; default: on a terminal, with a progress bar."
)
@with_fleet
async def backfill(
    fleet: Fleet,
    settings: Settings,
    /,
    schedule: str,
    start: datetime | date,
    end: datetime | date,
    *,
    waits: bool | None,
    **options: Any,
) -> None:
    """Run the ticks of SCHEDULE in a past range, below all live work. Having waited, exit 0 if no run failed."""
    trigger = (await fleet.get_schedule(schedule)).trigger
    begun = await fleet.backfill(schedule, _instant(start, trigger), _instant(end, trigger), **options)
    if options["dry_run"]:
        said = f"would create {begun.created} runs for {begun.total} ticks; {begun.existing} need none"
        output.emit(settings, begun, lambda: click.echo(said))
        return
    terminal = sys.stdout.isatty() and not settings.json
    if not (terminal if waits is None else waits):
        output.emit(settings, begun, lambda: _say(begun))
        return
    if not any(leader.node for leader in await fleet.leaders()):
        click.echo("no scheduler is running: it begins when one does", err=True)
    ended = await _watch(fleet, begun, terminal=terminal)
    output.emit(settings, ended, lambda: _say(ended))
    if ended.state != "done" or ended.failed:
        raise click.exceptions.Exit(1)


def _instant(when: datetime | date, trigger: Trigger) -> datetime:
    if isinstance(when, datetime):
        return when
    return datetime.combine(when, time(), ZoneInfo(trigger.tz) if isinstance(trigger, Cron) else UTC).astimezone(UTC)


async def _watch(fleet: Fleet, begun: Backfill, *, terminal: bool) -> Backfill:
    """Until it has ended; an interrupt ends the watching only."""
    try:
        if not terminal:
            return await _to_the_end(fleet, begun, lambda _: None)
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # lazy: 60 ms, for terminals

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, transient=True) as bar:
            task = bar.add_task(f"backfill {begun.id}", total=begun.total, note="")
            return await _to_the_end(fleet, begun, lambda b: bar.update(task, completed=_dealt_with(b), note=_note(b)))
    except asyncio.CancelledError:
        click.echo(
            f"backfill {begun.id} goes on: see `fleetcron backfills`, `fleetcron backfill-cancel {begun.id}`", err=True
        )
        raise


async def _to_the_end(fleet: Fleet, backfill: Backfill, show: Callable[[Backfill], None]) -> Backfill:
    while backfill.state not in ("done", "cancelled"):
        await sleep(_EVERY)
        backfill = await fleet.get_backfill(backfill.id)
        show(backfill)
    return backfill


@click.command(cls=Command)
@click.argument("schedule", required=False)
@click.option("--limit", type=int, default=100, show_default=True)
@click.option("--after", type=int, help="Go on after this backfill.")
@with_fleet
async def backfills(fleet: Fleet, settings: Settings, /, schedule: str | None, limit: int, after: int | None) -> None:
    """Backfills, newest first; of SCHEDULE, or of all."""
    found = await fleet.backfills(schedule, limit=limit, after=after)
    columns = ("backfill", "schedule", "from", "to", "state", "ticks", "created", "existing", "done", "failed", "open")
    rows = (
        (b.id, b.schedule, b.start, b.end, b.state, b.total, b.created, b.existing, b.done, b.failed, b.open)
        for b in found
    )
    output.emit(settings, found, lambda: output.table(columns, rows, empty="no backfills"))


@click.command("backfill-cancel", cls=Command)
@click.argument("backfill", type=int)
@with_fleet
async def cancel(fleet: Fleet, settings: Settings, /, backfill: int) -> None:
    """End BACKFILL: its runs that wait are cancelled, those that run are asked to stop. Exit 1 if it had ended already."""
    ended = await fleet.cancel_backfill(backfill)
    output.emit(settings, ended, lambda: _say(ended))
    if ended.state != "cancelled":
        raise click.exceptions.Exit(1)


@click.command("backfill-pause", cls=Command)
@click.argument("backfill", type=int)
@with_fleet
async def pause(fleet: Fleet, settings: Settings, /, backfill: int) -> None:
    """Create no more runs of BACKFILL until it is resumed; those that there are go on."""
    paused = await fleet.pause_backfill(backfill)
    output.emit(settings, paused, lambda: _say(paused))


@click.command("backfill-resume", cls=Command)
@click.argument("backfill", type=int)
@with_fleet
async def resume(fleet: Fleet, settings: Settings, /, backfill: int) -> None:
    """Go on with a paused BACKFILL."""
    resumed = await fleet.resume_backfill(backfill)
    output.emit(settings, resumed, lambda: _say(resumed))


def _say(b: Backfill) -> None:
    click.echo(
        f"backfill {b.id} of {output.clean(b.schedule)} is {b.state}: {_dealt_with(b)} of {b.total} ticks are dealt with"
        f" ({b.done} done, {b.failed} failed, {b.existing} needed no run), {b.open} open"
    )


def _dealt_with(b: Backfill) -> int:
    return b.existing + b.done + b.failed


def _note(b: Backfill) -> str:
    notes = [f"{b.failed} failed"] if b.failed else []
    return ", ".join([*notes, "paused"] if b.state == "paused" else notes)
