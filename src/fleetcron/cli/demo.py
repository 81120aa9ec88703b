"""`fleetcron demo`."""

from __future__ import annotations

import click

from fleetcron.cli.program import Command
from fleetcron.cli.settings import Settings
from fleetcron.demo import main


@click.command(cls=Command)
@click.option("--keep", is_flag=True, help="Leave its folder (database, reports, logs) when it ends.")
@click.pass_obj
def demo(settings: Settings, keep: bool) -> None:
    """See it work, within a minute: kill -9 of a worker and of the leader, an outage, a poison job, and the verdict.

    On a temporary SQLite file, or on an empty database that --url names ($FLEETCRON_URL is not asked).
    """
    code = main(url=settings.url, keep=keep, json=settings.json)
    if code:
        raise click.exceptions.Exit(code)
