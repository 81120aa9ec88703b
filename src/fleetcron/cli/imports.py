"""`fleetcron import crontab`: shell jobs and schedules from crontabs, and a report of every line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from fleetcron.cli import output
from fleetcron.cli.jobs import shell_job
from fleetcron.cli.program import Group
from fleetcron.cli.settings import Settings
from fleetcron.cli.zone import machine_zone
from fleetcron.declare import make_schedule
from fleetcron.errors import ConfigError, StoreError
from fleetcron.fleet import Fleet
from fleetcron.importers.crontab import CrontabImport, ImportedEntry, has_user_column, parse_crontab
from fleetcron.importers.naming import origin
from fleetcron.model import Job, Schedule

STDIN_NAME = "crontab"


class Plan(msgspec.Struct):
    """What the command line decided for every entry."""

    tz: str
    misfire: str
    max_attempts: int
    queue: str | None
    prefix: str


class File(msgspec.Struct):
    """A crontab that was read. `family` begins the names of all that was ever imported from it."""

    path: str
    found: CrontabImport
    family: str


class Result(msgspec.Struct):
    """What was done: schedule → "created", "edited" or "unchanged"; what has left its file; what was removed."""

    changes: dict[str, str] = {}
    vanished: dict[str, list[str]] = {}
    removed: list[str] = []


@click.group("import", cls=Group)
def import_() -> None:
    """Jobs and schedules from what you have today."""


@import_.command("crontab")
@click.argument(
    "files", metavar="FILE…", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True)
)
@click.option(
    "--system/--no-system", default=None, help="There is a user column; default: for /etc/crontab and cron.d."
)
@click.option("--tz", help="The zone that the times are in, where no CRON_TZ says; default: this machine's.")
@click.option(
    "--misfire", default="fire_once", show_default=True, help="What happens to ticks that could not start in time."
)
@click.option("--max-attempts", type=int, default=1, show_default=True, help="Tries of a failed command; cron has one.")
@click.option("--queue", help="The jobs' queue; default: default.")
@click.option("--prefix", default="", help="Begins the names, to keep the crontabs of several machines apart.")
@click.option("--dry-run", is_flag=True, help="Print the report and touch no database.")
@click.option("--prune", is_flag=True, help="Remove what was imported from a FILE earlier and is not in it any more.")
@click.pass_obj
def crontab(
    settings: Settings,
    /,
    files: Sequence[str],
    system: bool | None,
    tz: str | None,
    dry_run: bool,
    prune: bool,
    **options: Any,
) -> None:
    """Import crontabs ("-" is standard input); again changes only what has changed. Exit 1 if a line was refused."""
    plan = Plan(tz=tz or machine_zone() or "UTC", **options)
    read = [_read(path, system, plan) for path in files]
    _refuse_equal_names(read)
    entries = [(file, entry) for file in read for entry in file.found.imported]
    jobs = {entry.job: _job(entry, plan) for _, entry in entries}  # one job may have several schedules
    if entries:
        _check(entries[0][1], plan)
    result = Result()
    if not dry_run:
        result = asyncio.run(_register(settings.fleet().operator(), read, jobs, plan, prune=prune))
    report = _report(read, plan, result, dry_run=dry_run)
    output.emit(settings, report, lambda: _print(report))
    if report["refused"]:
        raise click.exceptions.Exit(1)


def _read(path: str, system: bool | None, plan: Plan) -> File:
    try:
        if path == "-":
            raw, source = sys.stdin.buffer.read(), STDIN_NAME
        else:
            raw, source = Path(path).read_bytes(), str(Path(path).absolute())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    text = raw.decode("utf-8", "surrogateescape")
    found = parse_crontab(
        text, system=has_user_column(source) if system is None else system, source=source, default_tz=plan.tz
    )
    renamed = [
        msgspec.structs.replace(entry, job=plan.prefix + entry.job, schedule=plan.prefix + entry.schedule)
        for entry in found.imported
    ]
    return File(path, CrontabImport(imported=renamed, refused=found.refused), f"{plan.prefix}{origin(source)}:")


def _refuse_equal_names(files: Iterable[File]) -> None:
    seen: dict[str, str] = {}
    for file in files:
        if file.family in seen:
            raise ConfigError(
                f"{seen[file.family]} and {file.path} would give their schedules the same names ({file.family}…); "
                "import them one by one, each with its own --prefix"
            )
        seen[file.family] = file.path


def _job(entry: ImportedEntry, plan: Plan) -> Job:
    return shell_job(entry.job, entry.target(), queue=plan.queue, max_attempts=plan.max_attempts)


def _schedule(entry: ImportedEntry, plan: Plan, old: Schedule | None) -> tuple[Any, ...]:
    options = {"misfire": plan.misfire, "jitter": entry.jitter, "paused": old is not None and old.paused}
    return entry.schedule, entry.job, entry.trigger, None, options


def _check(entry: ImportedEntry, plan: Plan) -> None:
    """A --misfire that does not exist is noticed before anything is written, and in a dry run."""
    make_schedule(entry.schedule, _job(entry, plan), entry.trigger, "{}", misfire=plan.misfire)  # type: ignore[arg-type]


async def _register(fleet: Fleet, files: Sequence[File], jobs: dict[str, Job], plan: Plan, *, prune: bool) -> Result:
    entries = [entry for file in files for entry in file.found.imported]
    async with fleet:
        known = {s.name: s async for s in _all_schedules(fleet)}
        await fleet.add_jobs(list(jobs.values()))
        made = [_schedule(entry, plan, known.get(entry.schedule)) for entry in entries]
        answers = await fleet.schedule_many(made) if made else []
        result = Result(changes={entry.schedule: answer for entry, answer in zip(entries, answers, strict=True)})
        kinds = {job.name: job.type for job in await fleet.jobs()}
        for file in files:
            gone = [
                s for s in known.values()
                if s.name.startswith(file.family) and s.name not in result.changes and kinds.get(s.job) == "shell"
            ]  # fmt: skip
            result.vanished[file.path] = sorted(s.name for s in gone)
            # A line that was refused may be one of the schedules that seem to be gone: a typo must not remove it.
            if prune and not file.found.refused:
                result.removed += await _remove(fleet, gone)
    return result


async def _remove(fleet: Fleet, gone: Sequence[Schedule]) -> list[str]:
    for schedule in gone:
        await fleet.unschedule(schedule.name)
    for job in {schedule.job for schedule in gone}:
        try:
            await fleet.remove_job(job)
        except StoreError:  # runs of it wait, or another schedule has it: then it is still needed
            continue
    return sorted(schedule.name for schedule in gone)


async def _all_schedules(fleet: Fleet) -> Any:
    after = None
    while True:
        page = await fleet.schedules(limit=1000, after=after)
        for schedule in page:
            yield schedule
        if (after := page.next) is None:
            return


def _report(files: Sequence[File], plan: Plan, result: Result, *, dry_run: bool) -> dict[str, Any]:
    imported: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for file in files:
        report = file.found.report()
        imported += [
            {"file": file.path, **entry, "change": result.changes.get(entry["schedule"])}
            for entry in report["imported"]
        ]
        refused += [{"file": file.path, **line} for line in report["refused"]]
    return {
        "tz": plan.tz,
        "misfire": plan.misfire,
        "max_attempts": plan.max_attempts,
        "dry_run": dry_run,
        "imported": imported,
        "refused": refused,
        "vanished": [{"file": path, "schedule": name} for path, names in result.vanished.items() for name in names],
        "removed": result.removed,
    }


def _print(report: dict[str, Any]) -> None:
    for entry in report["imported"]:
        change = entry["change"] or "would be imported"
        place, name = f"{output.clean(entry['file'])}:{entry['line']}", output.clean(entry["schedule"])
        click.echo(f"{place}: {name}  {entry['trigger']}  {change}")
        for note in entry["notes"]:
            click.echo(f"    note: {output.clean(note)}")
    for line in report["refused"]:
        click.echo(f"{output.clean(line['file'])}:{line['line']}: REFUSED: {output.clean(line['reason'])}")
    for gone in report["vanished"]:
        what = "removed" if gone["schedule"] in report["removed"] else "still scheduled; --prune removes it"
        click.echo(
            f"{output.clean(gone['file'])}: {output.clean(gone['schedule'])} is not in the file any more: {what}"
        )
    would_be = "would be " if report["dry_run"] else ""
    click.echo(
        f"{len(report['imported'])} {would_be}imported, {len(report['refused'])} refused; "
        f"time zone {report['tz']}, misfire {report['misfire']}, max attempts {report['max_attempts']}"
    )
