"""Runs: submit, look, wait, cancel."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from fleetcron.cli import output
from fleetcron.cli.program import Command
from fleetcron.cli.settings import Settings, with_app, with_fleet
from fleetcron.cli.values import DURATION, DURATION_OR_ZERO, JSON, MOMENT, MOMENT_OR_AGO
from fleetcron.fleet import Fleet
from fleetcron.model import Attempt, State
from fleetcron.run import Run


@click.command(cls=Command)
@click.argument("job")
@click.option(
    "--json-payload", "payload", type=JSON, help='An object such as \'{"user": 42}\'; "-" reads standard input.'
)
@click.option("--at", type=MOMENT, help="When it is due, RFC 3339.")
@click.option("--delay", type=DURATION_OR_ZERO, help="Due this long from now.")
@click.option("--key", help="A second submit with this key returns the first run.")
@click.option("--key-scope", help="Until when the key holds: finished (default), started, or a duration.")
@click.option(
    "--on-duplicate", type=click.Choice(["keep", "replace"]), help="What a second submit does to a waiting run."
)
@click.option("--tenant", help="Whose run it is.")
@click.option("--queue", help="Instead of the job's own.")
@click.option("--priority", type=click.IntRange(0, 9), help="0 first … 9 last, instead of the job's own.")
@click.option("--start-deadline", type=DURATION, help="Not started by then, it expires.")
@click.option("--concurrency-key", help="Runs with this key never overlap.")
@click.option("--wait", "waits", is_flag=True, help="Wait for its end; exit 0 if it succeeded.")
@click.option("--timeout", type=DURATION_OR_ZERO, help="How long to wait at most.")
@with_app
async def submit(
    fleet: Fleet, settings: Settings, /, job: str, payload: Any, *, waits: bool, timeout: str | None, **options: Any
) -> None:
    """Submit one run of JOB, due now, --at a time or after a --delay."""
    run = await fleet.submit(job, payload, **{name: value for name, value in options.items() if value is not None})
    created = run.created
    if waits:
        await run.wait(timeout)

    def human() -> None:
        if not created:
            click.echo(f"run {run.id} has this key already")
        _say(run)

    output.emit(settings, run.to_dict() | {"created": created}, human)
    if waits:
        _exit_with(run)


@click.command(cls=Command)
@click.option("--job", help="Of this job.")
@click.option("--schedule", help="Of this schedule.")
@click.option("--state", help=f"In this state: {', '.join(State)}.")
@click.option("--tenant", help="Of this tenant.")
@click.option("--queue", help="In this queue.")
@click.option("--key", help="With this key.")
@click.option("--since", type=MOMENT_OR_AGO, help='Due at or after this time, or this long ago ("90m").')
@click.option("--until", type=MOMENT_OR_AGO, help="Due before this time.")
@click.option("--limit", type=int, default=100, show_default=True)
@click.option("--after", type=int, help="Go on after this run.")
@with_fleet
async def runs(fleet: Fleet, settings: Settings, /, **filters: Any) -> None:
    """Runs, newest first."""
    found = await fleet.runs(**filters)
    columns = ("run", "job", "state", "due", "started", "took", "attempt", "worker")

    def human() -> None:
        rows = ((r.id, r.job, r.state, r.due_at, r.started_at, _took(r), r.attempt, r.worker) for r in found)
        output.table(columns, rows, empty="no runs")
        output.more(len(found), found.next)

    output.emit(settings, list(found), human)


@click.command(cls=Command)
@click.argument("run", type=int)
@with_fleet
async def show(fleet: Fleet, settings: Settings, /, run: int) -> None:
    """One run: its times, attempts, progress, payload and result."""
    await print_run(fleet, settings, run)


@click.command(cls=Command)
@click.argument("run", type=int)
@click.option("--timeout", type=DURATION_OR_ZERO, help="Give up after this long, with exit code 1.")
@with_fleet
async def wait(fleet: Fleet, settings: Settings, /, run: int, timeout: str | None) -> None:
    """Wait until RUN has ended. Exit 0 if it succeeded, else 1."""
    found = await (await fleet.run(run)).wait(timeout)
    output.emit(settings, found, lambda: _say(found))
    _exit_with(found)


@click.command(cls=Command)
@click.argument("run", type=int)
@with_fleet
async def cancel(fleet: Fleet, settings: Settings, /, run: int) -> None:
    """End RUN if it waits; ask its worker to stop it if it runs. Exit 1 if it had ended already."""
    answer = await fleet.cancel(run)
    said = {
        "cancelled": f"run {run} is cancelled",
        "asked": f"run {run} is running: its worker was asked to stop it",
        "too late": f"run {run} has ended already",
    }
    output.emit(settings, {"id": run, "answer": answer}, lambda: click.echo(said[answer]))
    if answer == "too late":
        raise click.exceptions.Exit(1)


async def print_run(fleet: Fleet, settings: Settings, run_id: int) -> None:
    """Everything about one run."""
    run = await fleet.run(run_id)
    progress = await fleet.progress(run_id)

    def human() -> None:
        _print(run)
        if progress is not None:
            of = f" of {progress.total}" if progress.total is not None else ""
            click.echo(
                f"progress         {progress.done}{of}{': ' + output.clean(progress.note) if progress.note else ''}"
            )
        for attempt in run.attempts:
            _print_attempt(attempt)
        output.block("payload", output.to_json(run.payload).decode())
        if run.result is not None:
            output.block("result", run.result if isinstance(run.result, str) else output.to_json(run.result).decode())

    output.emit(settings, run.to_dict() | {"progress": progress}, human)


def _print(run: Run) -> None:
    output.fields(
        [
            ("run", f"{run.id}  {output.clean(run.job)}"),
            ("state", f"{run.state}{f' ({output.clean(run.reason)})' if run.reason else ''}"),
            ("schedule", run.schedule),
            ("tick", None if run.nominal_at is None else output.local_and_utc(run.nominal_at)),
            ("due", output.local_and_utc(run.due_at)),
            ("started", None if run.started_at is None else output.local_and_utc(run.started_at)),
            ("finished", None if run.finished_at is None else output.local_and_utc(run.finished_at)),
            ("took", _took(run)),
            ("attempt", run.attempt),
            ("worker", run.worker),
            ("queue", f"{output.clean(run.queue)}, priority {run.priority}"),
            ("tenant", run.tenant or None),
            ("key", run.key),
            ("idempotency key", run.idempotency_key),
            ("error", None if run.error is None else output.clean(run.error)),
        ]
    )


def _print_attempt(attempt: Attempt) -> None:
    took = None
    if attempt.started_at is not None and attempt.finished_at is not None:
        took = attempt.finished_at - attempt.started_at
    parts = [
        f"attempt {attempt.number}: {attempt.state}",
        f"from {output.local(attempt.started_at)}" if attempt.started_at else "",
        f"took {output.cell(_rounded(took))}" if took is not None else "",
        f"by {attempt.worker}" if attempt.worker else "",
        f"fence {attempt.fence}" if attempt.fence is not None else "",
    ]
    output.block(", ".join(part for part in parts if part), attempt.traceback or attempt.error or "")


def _say(run: Run) -> None:
    took = _took(run)
    words = f"run {run.id} ({output.clean(run.job)}) {'is ' if not run.state.final else ''}{run.state}"
    if run.state is State.SCHEDULED:
        words += f", due {output.local_and_utc(run.due_at)}"
    if run.state.final and took is not None:
        words += f" after {output.cell(took)}"
    click.echo(words)
    if run.error and run.state is not State.SUCCEEDED:
        click.echo(f"  {output.clean(run.error)}")


def _took(run: Run) -> timedelta | None:
    began: datetime | None = run.started_at
    return None if began is None or run.finished_at is None else _rounded(run.finished_at - began)


def _rounded(took: timedelta) -> timedelta:
    """To the millisecond; no shorter than nothing (two machines' clocks)."""
    return max(timedelta(0), timedelta(milliseconds=round(took / timedelta(milliseconds=1))))


def _exit_with(run: Run) -> None:
    if run.state is not State.SUCCEEDED:
        raise click.exceptions.Exit(1)
