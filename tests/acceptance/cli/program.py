"""The program, run as people run it: a process of its own, in a folder of its own; in ours, to look at what it did."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from click.testing import CliRunner

from fleetcron.cli import main

APP = """
import asyncio, os, time
from pathlib import Path
from fleetcron import Context, Fleet, Retry

fleet = Fleet()

@fleet.job
async def slow(seconds: float):
    Path(f"started-{os.getpid()}").touch()
    await asyncio.sleep(seconds)
    return {"pid": os.getpid()}

@fleet.job
def echo(n: int):
    return n

@fleet.job(retry=Retry(max_attempts=2, backoff=0))
def boom():
    raise RuntimeError("went \\x1b[31mwrong")

@fleet.job
async def block(seconds: float):
    Path("blocked").touch()
    time.sleep(seconds)

@fleet.job
async def step(ctx: Context):
    await ctx.progress(3, 10, "three of ten")
    await asyncio.sleep(60)
"""


def until(found: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """Wait for a truthy answer, with a bound."""
    give_up_at = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < give_up_at, f"after {seconds:g}s still not: {what}"
        time.sleep(0.05)
    return answer


class Program:
    """`fleetcron` with one database, run in one folder."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("FLEETCRON_")}
        self.env["FLEETCRON_URL"] = url

    def with_app(self) -> Program:
        """The same with the app of these tests."""
        (self.folder / "app.py").write_text(APP)
        self.env["FLEETCRON_APP"] = "app:fleet"
        return self

    def run(self, *words: str, code: int = 0, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """To its end; the exit code is checked."""
        done = subprocess.run(
            [sys.executable, "-m", "fleetcron", *words],
            cwd=self.folder, env=self.env, input=stdin, capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str, code: int = 0, stdin: str | None = None) -> Any:
        """What it prints with --json: run in this process, without an app, 20 times as fast."""
        env = {"FLEETCRON_URL": self.url, "FLEETCRON_APP": None}
        done = CliRunner().invoke(main, [*words, "--json"], env=env, input=stdin)
        assert done.exit_code == code, f"{words}: exit code {done.exit_code}\n{done.output}\n{done.exception!r}"
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return json.loads(done.stdout)

    @contextlib.contextmanager
    def node(self, *words: str) -> Iterator[Node]:
        """A node that is ready. What is left of it is killed in the end."""
        node = Node(self, words)
        try:
            node.await_ready()
            yield node
        finally:
            node.close()


class Node:
    """A running `fleetcron run`."""

    def __init__(self, program: Program, words: tuple[str, ...]) -> None:
        self._out = (program.folder / "node.out").open("w+")
        self._err = (program.folder / "node.err").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fleetcron", "run", *words],
            cwd=program.folder, env=program.env, stdout=self._out, stderr=self._err,
        )  # fmt: skip
        self.pid = self.process.pid
        self._seen: set[psutil.Process] = set()

    @property
    def out(self) -> str:
        return self._read(self._out)

    @property
    def err(self) -> str:
        return self._read(self._err)

    @staticmethod
    def _read(file: Any) -> str:
        return Path(file.name).read_text()

    def await_ready(self) -> None:
        until(lambda: self.out.endswith("\n") or self.process.poll() is not None, "the node is ready")
        assert self.process.poll() is None, self.err

    def has_started(self, name: str) -> bool:
        """Is a program of this name among its descendants?"""
        return any(name in child.name() for child in self.descendants())

    def is_gone(self) -> bool:
        """Is nothing left of what it started?"""
        return not self.descendants()

    def descendants(self) -> set[psutil.Process]:
        """Every process that it started, now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen |= set(psutil.Process(self.pid).children(recursive=True))
        return {child for child in self._seen if child.is_running() and child.status() != psutil.STATUS_ZOMBIE}

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 20.0) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(seconds)

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM, and its end."""
        self.signal()
        return self.end(seconds)

    def close(self) -> None:
        left = self.descendants()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        for child in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._out.close()
        self._err.close()
