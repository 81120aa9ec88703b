"""The registry: what the fleet can run."""

from __future__ import annotations

from typing import Any

import click

from fleetcron.cli import output
from fleetcron.cli.program import Command, Group
from fleetcron.cli.schedules import say, schedule_options, take_trigger
from fleetcron.cli.settings import Settings, asynchronous, with_fleet
from fleetcron.cli.values import DURATION, DURATION_OR_ZERO
from fleetcron.declare import make_job, make_schedule
from fleetcron.errors import ConfigError
from fleetcron.fleet import Fleet
from fleetcron.model import DEFAULT_PRIORITY, Job, Retry
from fleetcron.targets.shell import ShellTarget


def shell_job(
    name: str,
    target: ShellTarget,
    *,
    queue: str | None = None,
    priority: int | None = None,
    timeout: str | None = None,
    max_attempts: int | None = None,
    backoff: str | None = None,
) -> Job:
    """A job whose target is a command. Raises ConfigError."""
    retry: dict[str, Any] = {"max_attempts": max_attempts, "backoff": backoff}
    retry = {option: value for option, value in retry.items() if value is not None}
    job, _ = make_job(
        None,
        name,
        target=target.to_dict(),
        queue="default" if queue is None else queue,
        priority=DEFAULT_PRIORITY if priority is None else priority,
        timeout=timeout,
        retry=Retry(**retry),
        executor=None,
        strict=False,
        dead_letter=True,
        start_deadline=None,
        aliases=(),
    )
    return job


@click.command(cls=Command)
@with_fleet
async def jobs(fleet: Fleet, settings: Settings) -> None:
    """The jobs that the fleet knows; `known`: a live worker can run it; `paused`: its runs wait."""
    found = await fleet.jobs()
    columns = ("job", "type", "queue", "priority", "attempts", "timeout", "known", "paused")
    rows = ((j.name, j.type, j.queue, j.priority, j.max_attempts, j.timeout, j.known, j.paused) for j in found)
    output.emit(
        settings, found, lambda: output.table(columns, rows, empty="no jobs: start an app, or add one with job add")
    )


@click.group(cls=Group)
def job() -> None:
    """Jobs that need no Python."""


@job.command("add")
@click.argument("name")
@click.option("--shell", "command", metavar="CMD", required=True, help="The command line, run by /bin/sh on a worker.")
@click.option("--timeout", type=DURATION, help="The command is killed after this long.")
@click.option("--max-attempts", type=int, help="Tries before it is a dead letter; default: 5.")
@click.option(
    "--backoff", type=DURATION_OR_ZERO, help="The first retry waits up to this long, later ones longer; default: 5s."
)
@schedule_options
@asynchronous
async def job_add(
    settings: Settings,
    /,
    name: str,
    command: str,
    timeout: str | None,
    max_attempts: int | None,
    backoff: str | None,
    **options: Any,
) -> None:
    """Add job NAME, or change it. With --cron, --every or --at it gets a schedule of the same name."""
    trigger = take_trigger(name, options)
    given = {option: value for option, value in options.items() if value is not None}
    new = shell_job(
        name,
        ShellTarget(command=command),
        queue=given.get("queue"),
        priority=given.get("priority"),
        timeout=timeout,
        max_attempts=max_attempts,
        backoff=backoff,
    )
    if trigger is not None:
        make_schedule(name, new, trigger, "{}", **given)  # refuses before the job is written
    elif stray := sorted(set(given) - {"queue", "priority"}):
        raise ConfigError(f"--{stray[0].replace('_', '-')} belongs to a schedule; add --cron, --every or --at")
    async with settings.fleet().operator() as fleet:
        job_answer = (await fleet.add_jobs([new]))[0]
        schedule_answer, scheduled = "", None
        if trigger is not None:
            schedule_answer = (await fleet.schedule_many([(name, name, trigger, None, given)]))[0]
            scheduled = await fleet.get_schedule(name)
        added = next(found for found in await fleet.jobs() if found.name == name)

    def human() -> None:
        click.echo(f"job {output.clean(name)}: {job_answer}")
        if scheduled is not None:
            say(schedule_answer, scheduled)

    output.emit(settings, {"job": added, "schedule": scheduled}, human)


@job.command("rm")
@click.argument("name", nargs=-1, required=True)
@click.option("--schedules", "with_schedules", is_flag=True, help="Remove their schedules first.")
@with_fleet
async def job_rm(fleet: Fleet, settings: Settings, /, name: tuple[str, ...], with_schedules: bool) -> None:
    """Forget jobs. Refused while schedules or waiting runs need one. An app's own jobs come back when it starts."""
    for each in name:
        while with_schedules and (page := await fleet.schedules(job=each)):
            for found in page:
                await fleet.unschedule(found.name)
        await fleet.remove_job(each)
    output.emit(settings, {"removed": list(name)}, lambda: click.echo(f"removed: {', '.join(map(output.clean, name))}"))
