"""Schema and versions."""

from __future__ import annotations

import asyncio
import platform

import click

import fleetcron
from fleetcron.cli import output
from fleetcron.cli.program import Command
from fleetcron.cli.settings import Settings
from fleetcron.triggers import tzdata_version


@click.command(cls=Command)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if something is to be done.")
@click.pass_obj
def migrate(settings: Settings, check: bool) -> None:
    """Bring the database's schema up to date, in one transaction."""
    store = settings.fleet().make_store()

    async def work() -> list[str]:
        try:
            return await (store.pending_migrations() if check else store.migrate())
        finally:
            await store.close()

    names = asyncio.run(work())
    did = "to be applied" if check else "applied"
    words = f"{did}: {', '.join(names)}" if names else "the schema is up to date"
    output.emit(settings, {"pending" if check else "applied": names}, lambda: click.echo(words))
    if check and names:
        raise click.exceptions.Exit(1)


@click.command(cls=Command)
@click.pass_obj
def version(settings: Settings) -> None:
    """Versions of fleetcron, Python and the time zone data."""
    found = {"version": fleetcron.__version__, "python": platform.python_version(), "tzdata": tzdata_version()}
    words = f"fleetcron {found['version']}, Python {found['python']}, time zones {found['tzdata']}"
    output.emit(settings, found, lambda: click.echo(words))
