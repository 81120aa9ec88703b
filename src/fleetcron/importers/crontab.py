"""Crontabs: what Debian's cron would run becomes schedules; the rest is reported.

Where fleetcron does a thing differently, a note says how. What that cron would not run, or what another cron reads in
its own way, is refused with the reason: nothing is guessed. Three leniencies, each noted: a last line without a
newline, CRLF line ends, and `NAME=` for an empty value. One difference in scale: Debian's cron ignores a *whole* file
for one bad line; here the other lines are imported and the report names the bad one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

from fleetcron.errors import TriggerError
from fleetcron.importers import crontab_syntax as syntax
from fleetcron.importers.crontab_syntax import RefusedError
from fleetcron.importers.naming import Namer
from fleetcron.model import Record
from fleetcron.targets.shell import HOME, ShellTarget
from fleetcron.triggers import Cron, Trigger

DEFAULT_SHELL = "/bin/sh"
DEFAULT_PATH = "/usr/bin:/bin"  # what cron gives a command whose crontab sets none
_LONGEST_COMMAND = 998  # characters; Debian's cron refuses longer ones
_CRON_D_FILE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


class ImportedEntry(Record, frozen=True):
    """A line that became a schedule. `job` and `schedule` are names (the rule: `naming`), `line` counts from 1.

    `env` holds the file's settings above the line, `user` the user column (None in a user's own crontab), `jitter`
    comes from RANDOM_DELAY. `target()` is what the job runs.
    """

    line: int
    schedule: str
    job: str
    trigger: Trigger
    command: str
    stdin: str | None
    env: dict[str, str]
    user: str | None
    notes: list[str]
    jitter: timedelta | None = None

    def target(self) -> ShellTarget:
        """The shell target with cron's defaults: /bin/sh, PATH=/usr/bin:/bin, started in the user's home directory."""
        env = {"PATH": DEFAULT_PATH} | self.env
        shell = env.pop("SHELL", DEFAULT_SHELL)
        return ShellTarget(command=self.command, shell=shell, stdin=self.stdin, env=env, cwd=HOME, user=self.user)


class RefusedLine(Record, frozen=True):
    """A line that was not imported, and why."""

    line: int
    text: str
    reason: str


class CrontabImport(Record, frozen=True):
    """What became of a crontab, both lists in file order."""

    imported: list[ImportedEntry]
    refused: list[RefusedLine]

    def report(self) -> dict[str, Any]:
        """The JSON-able report of the command line."""
        return {
            "imported": [
                {"line": e.line, "schedule": e.schedule, "trigger": _show(e.trigger), "notes": list(e.notes)}
                for e in self.imported
            ],
            "refused": [{"line": r.line, "reason": r.reason} for r in self.refused],
        }


def parse_crontab(text: str, *, system: bool, source: str, default_tz: str) -> CrontabImport:
    """Read a crontab. `system`: the sixth column is a user (/etc/crontab, cron.d). `source`: its path, for the names.

    Decode bytes with `errors="surrogateescape"`: lines that are not UTF-8 are then refused one by one. Nothing that
    is in the text raises; a `default_tz` that does not exist is the reason of every refused line.
    """
    reader = _Reader(system=system, source=source, default_tz=default_tz)
    # Only \n ends a line: str.splitlines would also cut at form feeds and Unicode separators.
    lines = text.removeprefix("\ufeff").split("\n")
    for number, line in enumerate(lines, 1):
        reader.ends_file = number == len(lines)
        try:
            reader.read(number, line)
        except (RefusedError, TriggerError) as error:
            shown = line.encode(errors="replace").decode()  # so that it can be printed
            reader.refused.append(RefusedLine(line=number, text=shown, reason=str(error)))
    return CrontabImport(imported=reader.imported, refused=reader.refused)


def has_user_column(source: str) -> bool:
    """Is this the path of a system crontab: /etc/crontab, or a file in a cron.d folder?"""
    path = PurePosixPath(source)
    return path == PurePosixPath("/etc/crontab") or path.parent.name == "cron.d"


@dataclass
class _Reader:
    """What a line inherits from the lines above it."""

    system: bool
    source: str
    default_tz: str
    imported: list[ImportedEntry] = field(default_factory=list)
    refused: list[RefusedLine] = field(default_factory=list)
    ends_file: bool = False

    def __post_init__(self) -> None:
        self._namer = Namer(self.source)
        self._env: dict[str, str] = {}
        self._zone: tuple[str, int] | None = None  # CRON_TZ, and the line that set it
        self._jitter: timedelta | None = None
        self._once: list[str] = []  # notes on settings, for the first entry below them
        self._lasting: list[str] = []  # notes for every entry below
        path = PurePosixPath(self.source)
        if path.parent.name == "cron.d" and not _CRON_D_FILE.fullmatch(path.name):
            self._lasting.append(f"Debian's cron reads no file called {path.name!r} in cron.d: this may not run today")

    def read(self, number: int, raw: str) -> None:
        line = raw.removesuffix("\r").lstrip(syntax.BLANKS)
        if not line or line.startswith("#"):
            return
        if "\0" in line:
            raise RefusedError("holds a NUL character")
        try:
            line.encode()
        except UnicodeEncodeError:
            raise RefusedError("is not UTF-8; convert the file") from None
        if found := syntax.setting(line):
            self._set(number, *found)
            return
        self._entry(number, line)
        if raw.endswith("\r"):
            self.imported[-1].notes.append("CRLF line end removed; cron would hand the CR to the command")
        if self.ends_file:
            self.imported[-1].notes.append("no newline at the end of the file: Debian's cron ignores such a file")

    def _set(self, number: int, name: str, text: str) -> None:
        try:
            value = syntax.setting_value(text)
            if name == "RANDOM_DELAY" and not re.fullmatch(r"[0-9]{1,5}", value, re.ASCII):
                raise RefusedError(f"RANDOM_DELAY={value!r} is not a number of minutes")
        except RefusedError:
            self._lasting.append(f"line {number}, which sets {name}, was refused: this command may miss it")
            raise
        if not text:
            self._once.append(f"line {number}: {name}= is read as empty; Debian's cron wants {name}=''")
        if name == "CRON_TZ":
            self._zone = (value, number) if value else None
        elif name == "RANDOM_DELAY":
            self._jitter = timedelta(minutes=int(value)) or None
        elif name == "LOGNAME":
            self._once.append(f"line {number}: LOGNAME is not taken, as in cron; it is who runs the command")
        else:
            self._env[name] = value
            if "$" in value or value.startswith("~"):
                self._once.append(f"line {number}: {name} is taken as it stands; cron expands neither $ nor ~")

    def _entry(self, number: int, line: str) -> None:
        expression, rest = syntax.split_time(line)
        trigger = self._trigger(expression)
        user = None
        if self.system:
            user, rest = syntax.split_user(rest)
        elif rest.startswith("*"):
            raise RefusedError("the command starts with '*': Debian's cron has no sixth time field (seconds, years)")
        if rest.startswith("-"):
            raise RefusedError("the command starts with '-', which the shell would take for its own option")
        command, stdin = syntax.split_percent(rest)
        if not command.strip(syntax.BLANKS):
            raise RefusedError("no command")
        job, schedule = self._namer.name(command, user, stdin, self._env)
        self.imported.append(
            ImportedEntry(
                line=number,
                schedule=schedule,
                job=job,
                trigger=trigger,
                command=command,
                stdin=stdin,
                env=dict(self._env),
                user=user,
                notes=[*self._notes(rest, user), *self._once, *self._lasting],
                jitter=self._jitter,
            )
        )
        self._once.clear()

    def _trigger(self, expression: str) -> Cron:
        zone, line = self._zone or (self.default_tz, None)
        try:
            trigger = Cron(expression, zone)
        except TriggerError as error:
            raise RefusedError(f"{error} (CRON_TZ is set on line {line})" if line else str(error)) from None
        if trigger.next(_ANY_TIME) is None:
            raise RefusedError(f"{expression!r} names a date that never comes")
        return trigger

    def _notes(self, rest: str, user: str | None) -> Iterator[str]:
        if user is not None:
            others = "not root" if user == "root" else f"neither {user} nor root"
            yield f"runs as {user}: a worker that is {others} refuses it"
        elif re.match(r"root[ \t]", rest):
            yield "the command is called 'root': if that is a user column, import with --system"
        if mailto := self._env.get("MAILTO"):
            yield f"output is kept with the run; no mail is sent to {mailto}"
        if self._zone is not None:
            yield f"in the zone of CRON_TZ (line {self._zone[1]}); Debian's own cron ignores CRON_TZ"
        if "TZ" in self._env:
            yield "TZ reaches the command and does not move the schedule, as in cron"
        if self._jitter is not None:
            yield "RANDOM_DELAY becomes the schedule's jitter; Debian's own cron ignores it"
        if "\\\\" in rest.split("%", 1)[0]:
            yield "cron reads \\\\ in a command as \\, and so did the import"
        if len(rest) > _LONGEST_COMMAND:
            yield f"Debian's cron refuses commands above {_LONGEST_COMMAND} characters: this may not run today"


def _show(trigger: Trigger) -> str:
    return f"{trigger.expr} ({trigger.tz})" if isinstance(trigger, Cron) else trigger.explain()
