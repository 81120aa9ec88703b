"""`fleetcron doctor`: what is wrong with a fleet, one line a thing. It changes nothing, not even an empty database."""

from __future__ import annotations

import asyncio

import click

from fleetcron.cli import output
from fleetcron.cli.checks import Check
from fleetcron.cli.examine import examine
from fleetcron.cli.program import Command
from fleetcron.cli.settings import Settings

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "broken": ("BROKEN", "red")}


@click.command(cls=Command)
@click.pass_obj
def doctor(settings: Settings) -> None:
    """Check the fleet, one line for each thing. Exit 1 if something is broken."""
    fleet = settings.fleet().operator()
    checks = asyncio.run(examine(fleet))
    broken = [check for check in checks if check.verdict == "broken"]
    warnings = [check for check in checks if check.verdict == "warning"]

    def human() -> None:
        for check in checks:
            _line(check)
        verdict = f"{len(broken)} broken, {len(warnings)} to look at" if broken or warnings else "all is well"
        click.echo(f"\n{verdict}")

    output.emit(settings, {"ok": not broken, "checks": checks}, human)
    if broken:
        raise click.exceptions.Exit(1)


def _line(check: Check) -> None:
    mark, colour = _MARKS[check.verdict]
    click.echo(f"{click.style(mark.ljust(8), fg=colour)} {check.name}: {output.clean(check.text)}")
