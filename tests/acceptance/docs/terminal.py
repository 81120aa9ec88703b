"""A terminal with a shell in it, that does what a page says and compares what it shows.

A page's console block is read as people read it: `$ ` begins a command, what follows is what it prints. `…` stands for anything, a line of
it for any lines. `^C` is pressed when everything above it has been shown. A command must end with exit code 0, but for one that is followed
by `$ echo $?`.

Lines are compared without regard to how many blanks are in a row, and what the shell says about its jobs is left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import psutil

PATIENCE = 45.0  # seconds for a command
# Takes the terminal as its own, so that job control and Ctrl-C work (also where the tests run with SIGINT ignored), and becomes a shell.
_SHELL = """
import fcntl, os, signal, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
"""
_PROMPT = re.compile(r"\x01(\d+)\x02")
_JOBS = re.compile(r"^\[\d+\]([+-]? .*| \d+)$|^\^C$|^bash: line \d+: +\d+ .*$")
_RULE = re.compile(r"^[\s─━-]*$")


class Terminal:
    """One shell, interactive and with job control, in `folder`."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._seen = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        modes = termios.tcgetattr(slave)
        # No echo; and Ctrl-C must not flush what is on its way to us: the shell may already have answered.
        modes[3] = (modes[3] & ~termios.ECHO) | termios.NOFLSH
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        self._shell = subprocess.Popen(
            [sys.executable, "-c", _SHELL],
            cwd=folder, env={**env, "PS1": "", "PS2": "", "PROMPT_COMMAND": r"printf '\001%d\002' $?", "TERM": "xterm", "COLUMNS": "200"},
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self._read(lambda text: _PROMPT.search(text) is not None, 10)
        self._seen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave nothing running: the shell, its jobs, and what these have started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            left = psutil.Process(self._shell.pid).children(recursive=True)
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._shell.kill()
        self._shell.wait(10)
        os.close(self._master)

    def follow(self, text: str) -> None:
        """Do what a console block says. Raises AssertionError with what was shown when it is not what the block shows."""
        steps = read(text)
        for number, (command, shown) in enumerate(steps):
            looked_at = number + 1 < len(steps) and steps[number + 1][0] == "echo $?"
            self.do(command, shown, any_code=looked_at)

    def do(self, command: str, shown: str, *, any_code: bool = False) -> None:
        """One command, and what it must show."""
        self._seen = ""
        os.write(self._master, f"{command}\n".encode())
        before, pressed, after = shown.partition("^C\n")
        if pressed:
            self._until(lambda text: _PROMPT.search(text) is not None or matches(f"{before}…\n", text), command, shown)
            os.write(self._master, b"\x03")
        self._until(lambda text: _PROMPT.search(text) is not None, command, shown)
        code = _PROMPT.search(self._seen)
        output = _PROMPT.sub("", self._seen)
        assert code is not None
        assert matches(before + after, output), f"$ {command}\nshould show:\n{shown}\nbut shows:\n{clean(output)}"
        assert any_code or pressed or code[1] == "0", f"$ {command}\nexit code {code[1]}; it showed:\n{clean(output)}"

    def _until(self, found: Callable[[str], bool], command: str, shown: str) -> None:
        if not self._read(found, PATIENCE):
            raise AssertionError(
                f"$ {command}\nafter {PATIENCE:g} s it does not show:\n{shown}\nbut:\n{clean(self._seen)}"
            )

    def _read(self, found: Callable[[str], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not found(self._seen):
            left = end - time.monotonic()
            if left <= 0:
                return False
            if select.select([self._master], [], [], min(left, 0.2))[0]:
                self._seen += os.read(self._master, 65536).decode(errors="replace")
        return True


def read(text: str) -> list[tuple[str, str]]:
    """(command, what it shows) of a console block; a command goes on in the next line after a backslash."""
    steps: list[tuple[str, str]] = []
    command, shown, open_ = None, "", False
    for line in text.splitlines():
        if open_:
            command, open_ = f"{command}\n{line}", line.endswith("\\")
        elif line.startswith("$ "):
            if command is not None:
                steps.append((command, shown))
            command, shown, open_ = line[2:], "", line.endswith("\\")
        else:
            assert command is not None, f"a console block begins with a command, not with {line!r}"
            shown += f"{line}\n"
    if command is not None:
        steps.append((command, shown))
    return steps


def clean(output: str) -> str:
    """What a program showed: without colours, the shell's remarks on its jobs, empty lines and drawn rules; blanks in a row are one."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).replace("\r", "")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "\n".join(line for line in lines if not _RULE.match(line) and not _JOBS.match(line))


def matches(shown: str, output: str) -> bool:
    """Does the output look like what a page shows?"""
    pattern = ""
    for line in clean(shown).splitlines():
        if line == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*?".join(re.escape(part) for part in re.split(" ?… ?", line)) + r"\n"
    found = clean(output)
    return re.fullmatch(pattern, f"{found}\n" if found else "") is not None
