"""The shell target: one command line, as one user, with its output kept and its end certain (see `process`)."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from fleetcron.errors import ConfigError, FleetcronError
from fleetcron.model import Record
from fleetcron.targets.process import ProcessGroup
from fleetcron.triggers.base import rfc3339, utc

HOME = "~"  # the value of `ShellTarget.cwd` that means "the user's home directory"
# What a command run as another user sees of our environment.
_SHARED = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")


class ShellError(FleetcronError):
    """The command could not be started. Says what was tried, where, and what to do."""


class ShellUserError(ShellError):
    """The command names a user that this process cannot become. It was not run as anybody else."""


class ShellTarget(Record, frozen=True, tag_field="type", tag="shell", forbid_unknown_fields=True, omit_defaults=True):
    """`shell -c command`, with `stdin` as its input (None: nothing to read) and `env` on top of the environment.

    `cwd` is a directory; "~" is cron's rule: $HOME, or "/" where that does not exist; None is the worker's own.
    `user` is who runs it: None is whoever runs fleetcron; anybody else needs a worker that runs as root.
    Raises ConfigError for text that no process can be given.
    """

    command: str
    shell: str = "/bin/sh"
    stdin: str | None = None
    env: dict[str, str] = {}  # noqa: RUF012  (msgspec copies it for each instance)
    cwd: str | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        if not self.command.strip():
            raise ConfigError("shell target: the command is empty")
        if not self.shell:
            raise ConfigError("shell target: the shell is empty; leave it out for /bin/sh")
        for name in self.env:
            if not name or "=" in name:
                raise ConfigError(f"shell target: {name!r} cannot be the name of an environment variable")
        fields = {name: getattr(self, name) or "" for name in ("command", "shell", "stdin", "cwd", "user")}
        for name, text in (*fields.items(), *self.env.items()):
            if "\0" in name + text and name != "stdin":
                raise ConfigError(f"shell target: {name!r} holds a NUL character, which no process can be given")
            try:
                (name + text).encode()
            except UnicodeEncodeError as error:
                raise ConfigError(f"shell target: {name!r} is not valid text: {error.reason}") from None

    def to_dict(self) -> dict[str, Any]:
        """The JSON-able form, {"type": "shell", "command": …}; defaults are left out."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ShellTarget:
        """The inverse of `to_dict`. Raises ConfigError naming a field that is unknown, missing or of the wrong type."""
        try:
            return msgspec.convert(dict(data), cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"shell target: {error}") from None


class ShellResult(Record, frozen=True):
    """How a command ended. `exit_code` is None if a signal ended it; then `signal` is its name ("SIGKILL").

    Both are None if it timed out and could not be killed within seconds: stuck in the kernel, or turned into another
    user's process by sudo.

    `output` is stdout and stderr as they came, cut to `max_output` bytes; a cut one ends in "… [cut: N bytes]".
    """

    exit_code: int | None
    output: str
    signal: str | None = None
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out

    def reason(self) -> str | None:
        """Why it is not ok, in a few words: "exit code 3", "killed by SIGTERM", "timed out"; None if it is."""
        if self.ok:
            return None
        if self.timed_out:
            return "timed out"
        return f"killed by {self.signal}" if self.exit_code is None else f"exit code {self.exit_code}"


async def run_shell(
    target: ShellTarget,
    *,
    env: Mapping[str, str],
    timeout: float | None,
    stop_grace: float = 5.0,
    max_output: int = 65536,
) -> ShellResult:
    """Run the command to its end. `env` (the run's facts, see `shell_environment`) wins over the target's own.

    After `timeout` seconds, or when the task is cancelled, the whole process group gets SIGTERM, and `stop_grace`
    seconds later SIGKILL if anything of it is left; a second cancellation kills at once. What a command leaves in the
    background when it ends by itself goes on, as under cron, and is not waited for beyond a second of output.

    The environment is the worker's, with HOME, LOGNAME, USER and SHELL set for the user. A command run as *another*
    user sees only PATH, locale and zone of it: the rest may hold the worker's secrets.

    Raises ShellUserError if it may not become `target.user`, ShellError if the shell or the directory is not there.
    """
    child = _start(target, env, max_output)
    timed_out = False
    try:
        try:
            async with asyncio.timeout(timeout):
                await child.exited.wait()
        except TimeoutError:
            timed_out = True
            await child.stop(stop_grace)
        await child.drain()
    except asyncio.CancelledError:
        await child.stop(stop_grace)
        raise
    finally:
        child.close()
    code = child.returncode
    return ShellResult(
        exit_code=code if code is not None and code >= 0 else None,
        output=child.output.text(),
        signal=_signal_name(-code) if code is not None and code < 0 else None,
        timed_out=timed_out,
    )


def shell_environment(
    *,
    run_id: int,
    job: str,
    schedule: str | None,
    tenant: str,
    nominal_at: datetime | None,
    attempt: int,
    idempotency_key: str,
    fence: int,
) -> dict[str, str]:
    """The run's facts as FLEETCRON_… variables; an absent one is an empty string, times are RFC 3339 in UTC.

    Raises TypeError for a naive `nominal_at`.
    """
    facts = {
        "RUN_ID": run_id,
        "JOB": job,
        "SCHEDULE": schedule,
        "TENANT": tenant,
        "NOMINAL_AT": None if nominal_at is None else rfc3339(utc("nominal_at", nominal_at)),
        "ATTEMPT": attempt,
        "IDEMPOTENCY_KEY": idempotency_key,
        "FENCE": fence,
    }
    return {f"FLEETCRON_{name}": "" if value is None else str(value) for name, value in facts.items()}


def _start(target: ShellTarget, env: Mapping[str, str], max_output: int) -> ProcessGroup:
    account = _account(target.user)
    switch = account is not None and account.pw_uid != os.geteuid()
    full = _environment(target, account, switch=switch) | dict(env)
    cwd = target.cwd
    if cwd == HOME:
        home = full.get("HOME", "/")
        cwd = home if Path(home).is_dir() else "/"
    try:
        return ProcessGroup(
            [target.shell, "-c", target.command],
            stdin=(target.stdin or "").encode(),
            env=full,
            cwd=cwd,
            account=account if switch else None,
            max_output=max_output,
        )
    except OSError as error:
        where = f" in {cwd}" if cwd else ""
        who = f" as {target.user}" if target.user else ""
        raise ShellError(
            f"cannot start {target.shell}{where}{who}: {error.strerror or error}; "
            "check that the shell and the directory exist on this worker and may be used"
        ) from error


def _account(user: str | None) -> pwd.struct_passwd | None:
    """Who will run it. None only where this process's own user has no account, as in many containers."""
    own = os.geteuid()
    if user is None:
        try:
            return pwd.getpwuid(own)
        except KeyError:
            return None
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ShellUserError(
            f"user {user!r} does not exist on this machine; create it or change the job's user"
        ) from None
    if own not in {account.pw_uid, 0}:
        raise ShellUserError(
            f"the job wants to run as {user!r}, and this worker runs as uid {own}, which cannot switch; "
            f"run the worker as root or as {user!r}, or change the job's user"
        )
    return account


def _environment(target: ShellTarget, account: pwd.struct_passwd | None, *, switch: bool) -> dict[str, str]:
    found = {name: os.environ[name] for name in _SHARED if name in os.environ} if switch else dict(os.environ)
    found.setdefault("PATH", os.defpath)
    if account is not None:
        found |= {"HOME": account.pw_dir, "LOGNAME": account.pw_name, "USER": account.pw_name}
    return found | {"SHELL": target.shell} | target.env


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
