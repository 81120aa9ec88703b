"""What did not run, and what used up its attempts."""

from __future__ import annotations

from typing import Any

import click

from fleetcron.cli import output
from fleetcron.cli.program import Command, Group
from fleetcron.cli.runs import print_run
from fleetcron.cli.settings import Settings, asynchronous, with_fleet
from fleetcron.cli.values import MOMENT_OR_AGO
from fleetcron.fleet import Fleet
from fleetcron.management import Replayed


@click.group(cls=Group)
def dead() -> None:
    """Dead letters: runs that used up their attempts."""


@dead.command("list")
@click.option("--job", help="Of this job.")
@click.option("--limit", type=int, default=100, show_default=True)
@click.option("--after", type=int, help="Go on after this run.")
@with_fleet
async def dead_list(fleet: Fleet, settings: Settings, /, **filters: Any) -> None:
    """Dead letters, newest first."""
    found = await fleet.dead_letters(**filters)

    def human() -> None:
        columns = ("run", "job", "schedule", "tenant", "attempts", "died", "error")
        rows = ((d.run_id, d.job, d.schedule, d.tenant, d.attempts, d.died_at, _short(d.error)) for d in found)
        output.table(columns, rows, empty="no dead letters")
        output.more(len(found), found.next)

    output.emit(settings, list(found), human)


@dead.command("show")
@click.argument("run", type=int)
@with_fleet
async def dead_show(fleet: Fleet, settings: Settings, /, run: int) -> None:
    """A dead letter: its run, with every attempt."""
    await fleet.dead_letter(run)
    await print_run(fleet, settings, run)


@dead.command("replay")
@click.argument("run", type=int, nargs=-1)
@click.option("--job", help="All of this job.")
@click.option("--schedule", help="All of this schedule.")
@click.option("--tenant", help="All of this tenant.")
@click.option("--since", type=MOMENT_OR_AGO, help='Those that died at or after this time, or this long ago ("2h").')
@click.option("--until", type=MOMENT_OR_AGO, help="Those that died before this time.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@asynchronous
async def dead_replay(settings: Settings, /, run: tuple[int, ...], everything: bool, **filters: Any) -> None:
    """Run dead letters again: RUN…, those that match, or --all; each once. Exit 1 if a named one was not."""
    given = {name: value for name, value in filters.items() if value is not None}
    _one_way(run, given, everything)
    async with settings.fleet().operator() as fleet:
        wanted: list[dict[str, Any]] = [{"run_id": run_id} for run_id in dict.fromkeys(run)]
        answers = [await fleet.replay(**one) for one in wanted or [given | {"all": everything}]]
    reasons: dict[str, int] = {}
    for answer in answers:
        for reason, count in answer.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    done = Replayed(sum(a.replayed for a in answers), sum(a.skipped for a in answers), reasons)

    def human() -> None:
        click.echo(f"{done.replayed} replayed")
        for reason, count in reasons.items():
            click.echo(f"{count} skipped: {reason}")

    output.emit(settings, done, human)
    if run and done.skipped:
        raise click.exceptions.Exit(1)


@dead.command("purge")
@click.argument("run", type=int, nargs=-1)
@click.option("--job", help="All of this job.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@asynchronous
async def dead_purge(settings: Settings, /, run: tuple[int, ...], job: str | None, everything: bool) -> None:
    """Forget dead letters: RUN…, those of a job, or --all. Their runs stay in the history as failed."""
    _one_way(run, {"job": job} if job else {}, everything)
    async with settings.fleet().operator() as fleet:
        purged = await (fleet.purge_dead(run) if run else _purge_all(fleet, job))
    output.emit(settings, {"purged": purged}, lambda: click.echo(f"{purged} purged"))
    if run and purged < len(set(run)):
        raise click.exceptions.Exit(1)


@click.command(cls=Command)
@click.argument("schedule", required=False)
@click.option("--limit", type=int, default=1000, show_default=True)
@with_fleet
async def misses(fleet: Fleet, settings: Settings, /, schedule: str | None, limit: int) -> None:
    """Ticks that did not run, and why, newest first; of SCHEDULE, or of all."""
    found = await fleet.misses(schedule, limit)
    if schedule is not None and not found:
        await fleet.get_schedule(schedule)  # the misses of a schedule that was removed are shown; a typo is told
    columns = ("schedule", "first", "last", "count", "reason", "policy", "decided")
    rows = ((m.schedule, m.first, m.last, m.count, m.reason, m.policy, m.decided_at) for m in found)
    output.emit(settings, found, lambda: output.table(columns, rows, empty="no misses"))


async def _purge_all(fleet: Fleet, job: str | None) -> int:
    purged, after = 0, None
    while found := await fleet.dead_letters(job=job, limit=1000, after=after):
        purged += await fleet.purge_dead([d.run_id for d in found])
        after = found[-1].run_id
    return purged


def _one_way(run: tuple[int, ...], filters: dict[str, Any], everything: bool) -> None:
    if bool(run) + bool(filters) + everything != 1:
        raise click.UsageError("name the runs, or a filter such as --job, or --all; one of the three")


def _short(error: str | None) -> str:
    text = output.cell(error)
    return text if len(text) <= 80 else text[:79] + "…"
