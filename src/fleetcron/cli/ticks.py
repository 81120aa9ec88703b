"""Expressions: what they mean, and when they tick. Nothing here touches a database."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from fleetcron.cli import output
from fleetcron.cli.program import Command
from fleetcron.cli.settings import Settings
from fleetcron.cli.values import MOMENT
from fleetcron.clock import wall_now
from fleetcron.triggers import Cron, Every, Trigger, dst_notes

_NAME_HELP = "The schedule's name, from which H takes its values."


@click.command("next", cls=Command)
@click.argument("expression", metavar="EXPR")
@click.option("--tz", default="UTC", show_default=True, help="The zone of the expression, an IANA name.")
@click.option("-n", "--count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many ticks.")
@click.option("--from", "start", type=MOMENT, help="Ticks after this time, RFC 3339; default: now.")
@click.option("--name", help=_NAME_HELP)
@click.pass_obj
def next_(settings: Settings, expression: str, tz: str, count: int, start: datetime | None, name: str | None) -> None:
    """The next ticks of EXPR: a cron expression ('0 9 * * MON-FRI'), a macro ('@daily') or an interval ('every 5m')."""
    trigger, zone = _read(expression, tz, name), _zone(tz)
    ticks = trigger.upcoming(start or wall_now(), count)
    found = [{"utc": t, "local": t.astimezone(zone).isoformat(), "note": dst_notes(trigger, t)} for t in ticks]

    def human() -> None:
        click.echo(f"{trigger.explain()}\n")
        output.table((tz, "UTC", "note"), (_row(t, zone, dst_notes(trigger, t)) for t in ticks), empty="it never ticks")

    output.emit(settings, found, human)


@click.command(cls=Command)
@click.argument("expression", metavar="EXPR")
@click.option("--tz", default="UTC", show_default=True, help="The zone of the expression, an IANA name.")
@click.option("--name", help=_NAME_HELP)
@click.pass_obj
def explain(settings: Settings, expression: str, tz: str, name: str | None) -> None:
    """EXPR in words."""
    trigger = _read(expression, tz, name)
    words = trigger.explain()
    output.emit(settings, {"trigger": trigger, "explain": words}, lambda: click.echo(words))


def _read(expression: str, tz: str, name: str | None) -> Trigger:
    """Raises TriggerError."""
    word, _, rest = expression.strip().partition(" ")
    return Every(rest.strip()) if word.lower() == "every" else Cron(expression, tz, name=name)


def _zone(tz: str) -> ZoneInfo:
    Cron("@daily", tz)  # raises TriggerError for what is no zone, in our words
    return ZoneInfo(tz)


def _row(tick: datetime, zone: ZoneInfo, note: str | None) -> tuple[Any, ...]:
    return tick.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %z"), tick.strftime("%Y-%m-%d %H:%M:%S"), note or ""
