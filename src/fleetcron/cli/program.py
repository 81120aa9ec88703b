"""The program: which commands there are, the options they share, and what an error becomes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

import fleetcron
from fleetcron.cli.settings import Settings
from fleetcron.errors import ConfigError, FleetcronError, PayloadError, TriggerError

# section: {command: (module:attribute, what `fleetcron --help` says)}
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "To begin": {
        "demo": ("demo:demo", "See it work: kills, an outage, a poison job, and the verdict."),
    },
    "Nodes": {
        "run": ("serve:run", "Start a node: scheduler, worker, or both."),
        "node": ("nodes:node", "Live nodes (node list)."),
        "leader": ("nodes:leader", "Who leads each shard (leader list)."),
        "lock": ("locks:lock", "Locks that are held (lock list)."),
        "doctor": ("doctor:doctor", "Check the fleet, one line for each thing; exit 1 if something is broken."),
        "migrate": ("upkeep:migrate", "Bring the database's schema up to date."),
        "version": ("upkeep:version", "Versions of fleetcron, Python and the time zone data."),
    },
    "Runs": {
        "submit": ("runs:submit", "Submit one run of a job."),
        "runs": ("runs:runs", "Runs, newest first."),
        "show": ("runs:show", "One run with its attempts, payload and result."),
        "wait": ("runs:wait", "Wait until a run has ended; exit 0 if it succeeded."),
        "cancel": ("runs:cancel", "End a run that waits, or ask a running one to stop."),
        "dead": ("dead:dead", "Dead letters: list, show, replay, purge."),
        "misses": ("dead:misses", "Ticks that did not run, and why."),
    },
    "Jobs and schedules": {
        "jobs": ("jobs:jobs", "The jobs that the fleet knows."),
        "job": ("jobs:job", "Add or remove a job that needs no Python (job add, job rm)."),
        "schedules": ("schedules:schedules", "Schedules by name."),
        "pause": ("schedules:pause", "Pause schedules, or jobs."),
        "resume": ("schedules:resume", "Resume schedules (the time of the pause is not caught up), or jobs."),
        "trigger": ("schedules:trigger", "Run a schedule (or a job) now."),
        "edit": ("schedules:edit", "Change a schedule."),
        "rm": ("schedules:rm", "Remove schedules."),
        "import": ("imports:import_", "Schedules from what you have today (import crontab)."),
    },
    "Backfills": {
        "backfill": ("backfills:backfill", "Run a past range of a schedule."),
        "backfills": ("backfills:backfills", "Backfills, newest first, with how far they are."),
        "backfill-cancel": ("backfills:cancel", "End a backfill."),
        "backfill-pause": ("backfills:pause", "Create no more runs of a backfill for now."),
        "backfill-resume": ("backfills:resume", "Go on with a paused backfill."),
    },
    "Limits": {
        "tenant": ("limits:tenant", "Limits of tenants (tenant set, tenant list)."),
        "queue": ("limits:queue", "Limits and depths of queues (queue set, queue list)."),
    },
    "Expressions": {
        "next": ("ticks:next_", "The next ticks of an expression, local and UTC."),
        "explain": ("ticks:explain", "An expression in words."),
    },
}
_USAGE = (ConfigError, TriggerError, PayloadError)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if value and param.name:
        setattr(settings, param.name, value)


def common_options() -> list[click.Parameter]:
    """What may stand before the command and after it; the later one wins."""
    return [
        click.Option(
            ["--url"],
            metavar="URL",
            expose_value=False,
            callback=_keep,
            help="The database; default: $FLEETCRON_URL, else the app's own, else sqlite:///fleetcron.db.",
        ),
        click.Option(
            ["--app"],
            metavar="MODULE:FLEET",
            expose_value=False,
            callback=_keep,
            help="The app's fleet; default: $FLEETCRON_APP. The current directory is on its import path.",
        ),
        click.Option(["--json"], is_flag=True, expose_value=False, callback=_keep, help="Print one JSON document."),
    ]


class Command(click.Command):
    """A command that also takes --url, --app and --json."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()


class Group(click.Group):
    """Commands that share a first word."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()


class Failure(click.ClickException):
    """What fleetcron raised on purpose, on stderr, without a traceback."""

    def __init__(self, error: FleetcronError) -> None:
        super().__init__(str(error))
        self.wrong = isinstance(error, _USAGE)

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """2 for what was asked wrongly, 1 for what failed."""
        return 2 if self.wrong else 1


class Program(Group):
    """The top: commands by name, imported when they are called."""

    def __init__(self) -> None:
        super().__init__(
            "fleetcron",
            help="Cron at fleet scale. `fleetcron COMMAND --help` says what a command takes.",
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
            subcommand_metavar="COMMAND …",
        )
        self.params.append(
            click.Option(
                ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print it."
            )
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for section in COMMANDS.values():
            if cmd_name in section:
                module, _, attribute = section[cmd_name][0].partition(":")
                command: click.Command = getattr(import_module(f"fleetcron.cli.{module}"), attribute)
                return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()], col_max=16)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FleetcronError as error:
            raise Failure(error) from error


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"fleetcron {fleetcron.__version__}")
        ctx.exit()
