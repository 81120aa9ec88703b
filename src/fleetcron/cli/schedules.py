"""Schedules: look, pause, resume, trigger, change, remove."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import click
import msgspec

from fleetcron.cli import output
from fleetcron.cli.program import Command
from fleetcron.cli.settings import Settings, with_app, with_fleet
from fleetcron.cli.values import DURATION, DURATION_OR_ZERO, JSON, MOMENT, NONE, OrNone
from fleetcron.decide.ticks import bounded_next
from fleetcron.declare import make_trigger
from fleetcron.fleet import Fleet
from fleetcron.model import MISFIRES, OVERLAPS, Schedule
from fleetcron.triggers import Cron, Once, Trigger

F = TypeVar("F", bound=Callable[..., Any])

_KEPT = (
    "misfire", "misfire_grace", "catchup_limit", "overlap", "jitter", "start", "end", "start_deadline", "tenant",
    "queue", "priority", "paused",
)  # fmt: skip


def schedule_options(command: F, *, edit: bool = False) -> F:
    """When, and by which policies. What is left out arrives as None. `edit`: the word "none" takes a value back, and arrives as NONE."""

    def back(value: click.ParamType[Any]) -> click.ParamType[Any]:
        return OrNone(value) if edit else value

    for option in reversed(
        (
            click.option("--cron", metavar="EXPR", help="A cron expression, five fields or six with seconds first."),
            click.option("--every", type=DURATION, help="An interval, in elapsed time."),
            click.option("--at", type=MOMENT, help="Once, RFC 3339."),
            click.option("--tz", help="The zone of --cron, an IANA name; default: UTC."),
            click.option(
                "--misfire", help=f"What happens to ticks that could not start in time: {', '.join(MISFIRES)}."
            ),
            click.option("--misfire-grace", type=DURATION_OR_ZERO, help="How late a tick may start; default: 60s."),
            click.option("--catchup-limit", type=int, help="How many ticks fire_all runs at most; default: 1000."),
            click.option("--overlap", help=f"What a tick does while the one before runs: {', '.join(OVERLAPS)}."),
            click.option("--jitter", type=back(DURATION_OR_ZERO), help="Spread starts over this long."),
            click.option("--start", type=back(MOMENT), help="No ticks before."),
            click.option("--end", type=back(MOMENT), help="No ticks after."),
            click.option("--start-deadline", type=back(DURATION), help="A run not started by then expires."),
            click.option("--queue", help="Default: default."),
            click.option("--priority", type=back(click.IntRange(0, 9)), help="0 first … 9 last; default: 5."),
            click.option("--tenant", help="Whose runs they are."),
        )
    ):
        command = option(command)
    return command


def take_trigger(name: str, options: dict[str, Any]) -> Trigger | None:
    """The trigger that --cron, --every, --at and --tz ask for, taken out of `options`; None when none was given."""
    cron, every, at, tz = (options.pop(option) for option in ("cron", "every", "at", "tz"))
    if tz is not None and cron is None:
        raise click.UsageError("--tz is the zone of --cron; give both")
    return make_trigger(name, cron, every, at, tz or "UTC")


@click.command(cls=Command)
@click.option("--job", help="Of this job.")
@click.option("--limit", type=int, default=100, show_default=True)
@click.option("--after", help="Go on after this schedule.")
@with_fleet
async def schedules(fleet: Fleet, settings: Settings, /, **filters: Any) -> None:
    """Schedules by name."""
    found = await fleet.schedules(**filters)
    now = await fleet.store.now()
    columns = ("schedule", "job", "trigger", "next tick", "misfire", "overlap", "tenant", "state")

    def human() -> None:
        output.table(
            columns,
            (
                (s.name, s.job, describe(s.trigger), bounded_next(s, now), s.misfire, s.overlap, s.tenant,
                 s.error or ("paused" if s.paused else "active"))
                for s in found
            ),
            empty="no schedules",
        )  # fmt: skip
        output.more(len(found), found.next)

    output.emit(settings, list(found), human)


@click.command(cls=Command)
@click.argument("name", nargs=-1, required=True)
@click.option("--job", "jobs", is_flag=True, help="NAME is a job, also where a schedule has the same name.")
@with_fleet
async def pause(fleet: Fleet, settings: Settings, /, name: tuple[str, ...], jobs: bool) -> None:
    """Pause schedules: their ticks are not run until they are resumed, and not caught up then. Or a job, which no schedule is named like:
    none of its runs starts, wherever they come from, and they wait."""
    for each in name:
        await (fleet.pause_job if jobs else fleet.pause)(each)
    output.emit(settings, {"paused": list(name)}, lambda: click.echo(f"paused: {', '.join(map(output.clean, name))}"))


@click.command(cls=Command)
@click.argument("name", nargs=-1, required=True)
@click.option("--at", type=MOMENT, help="Not before this time, RFC 3339.")
@click.option("--job", "jobs", is_flag=True, help="NAME is a job, also where a schedule has the same name.")
@with_fleet
async def resume(fleet: Fleet, settings: Settings, /, name: tuple[str, ...], at: datetime | None, jobs: bool) -> None:
    """Resume schedules, now or --at a time; or jobs."""
    if jobs and at is not None:
        raise click.UsageError("--at is for schedules; a job is resumed at once")
    for each in name:
        await (fleet.resume_job(each) if jobs else fleet.resume(each, at))
    output.emit(settings, {"resumed": list(name)}, lambda: click.echo(f"resumed: {', '.join(map(output.clean, name))}"))


@click.command(cls=Command)
@click.argument("name")
@with_app
async def trigger(fleet: Fleet, settings: Settings, /, name: str) -> None:
    """Run schedule NAME (or a job that needs no payload) now. Its rhythm does not change."""
    run = await fleet.trigger(name)
    output.emit(settings, run, lambda: click.echo(f"run {run.id} ({output.clean(run.job)}) is {run.state}"))


@click.command(cls=Command)
@click.argument("name")
@partial(schedule_options, edit=True)
@click.option("--json-payload", "payload", type=JSON, help='Its payload; "-" reads standard input.')
@with_fleet
async def edit(fleet: Fleet, settings: Settings, /, name: str, payload: Any, **options: Any) -> None:
    """Change schedule NAME; what is not given stays, the word "none" takes an option back, and "" the queue (to the job's) and the tenant.
    Ticks that have not started are withdrawn; nothing back-fires."""
    old = await fleet.get_schedule(name)
    new = take_trigger(name, options) or old.trigger
    given = {option: None if value is NONE else value for option, value in options.items() if value is not None}
    if given.get("queue") == "":
        given["queue"] = None
    if isinstance(new, Once) and "misfire" in given:
        raise click.UsageError("--misfire is for recurring schedules; --at has one tick and always runs it")
    if payload is None:
        payload = msgspec.json.decode(old.payload)
    kept = {option: getattr(old, option) for option in _KEPT}
    answer = (await fleet.schedule_many([(name, old.job, new, payload, kept | given)]))[0]
    found = await fleet.get_schedule(name)
    output.emit(settings, found, lambda: say(answer, found))


@click.command(cls=Command)
@click.argument("name", nargs=-1, required=True)
@with_fleet
async def rm(fleet: Fleet, settings: Settings, /, name: tuple[str, ...]) -> None:
    """Remove schedules and their ticks that have not started. Their jobs and runs stay."""
    for each in name:
        await fleet.unschedule(each)
    output.emit(settings, {"removed": list(name)}, lambda: click.echo(f"removed: {', '.join(map(output.clean, name))}"))


def say(answer: str, schedule: Schedule) -> None:
    """What was done with a schedule, and when it ticks next."""
    tick = output.local_and_utc(schedule.next_at)
    click.echo(f"schedule {output.clean(schedule.name)}: {answer}; {describe(schedule.trigger)}, next tick {tick}")


def describe(trigger: Trigger) -> str:
    """A trigger in a table."""
    return f"{trigger.expr} ({trigger.tz})" if isinstance(trigger, Cron) else trigger.explain()
