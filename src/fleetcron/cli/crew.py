"""A node's worker processes: started, restarted when they die, drained together, and never left behind.

Each has two pipes to its parent. One is only held: its end tells the child, and on Linux the kernel, that the parent is
dead, however it died. On the other the child says once that it is ready. A child is in a session of its own, so that
Ctrl-C in a terminal reaches the parent alone, which passes it on as SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import msgspec

from fleetcron.clock import monotonic
from fleetcron.errors import ConfigError
from fleetcron.node import end_at_once
from fleetcron.worker.executors.child import die_with

log = logging.getLogger("fleetcron.node")

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds before a dead child is replaced: doubled from death to death."""
SETTLED = 30.0
"""A child that lived this many seconds was well: the next one is not made to wait for the deaths before."""
PATIENCE = 60.0
"""Seconds beyond the drain for a child to end: stopping handlers takes up to 5, writing outcomes a lease."""


class Link(msgspec.Struct, frozen=True):
    """What a child is told: whose worker it is, its parent's pid, and its ends of the two pipes."""

    node: str
    parent: int
    alive: int
    ready: int

    def __str__(self) -> str:
        return f"{self.node}:{self.parent}:{self.alive}:{self.ready}"

    @classmethod
    def read(cls, text: str) -> Link:
        """The inverse of `str`. Raises ConfigError."""
        node, *numbers = text.split(":")
        if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
            raise ConfigError("--child is set by a node for its worker processes, and not by people")
        return cls(node, *map(int, numbers))

    def say_ready(self) -> None:
        """In the child: the worker has its session."""
        with suppress(BrokenPipeError):  # the parent is dead, and so are we in a moment
            os.write(self.ready, b".")
        os.close(self.ready)


def follow(link: Link) -> None:
    """In the child: end, at once and with everything that it started, when the parent has ended."""
    for fd in (link.alive, link.ready):
        os.set_inheritable(fd, False)
    die_with(link.parent, link.alive)
    threading.Thread(target=_await_end, args=(link.alive,), name="fleetcron-parent", daemon=True).start()


def _await_end(alive: int) -> None:
    """Where there is no kernel to do it. Nobody writes to the pipe: what poll reports is its end."""
    waiting = select.poll()
    waiting.register(alive, select.POLLIN | select.POLLHUP)
    waiting.poll()
    end_at_once()


class Crew:
    """`count` worker processes, each started by what `command` makes of its link. Used from one event loop."""

    def __init__(self, node: str, command: Callable[[Link], list[str]], count: int, drain: timedelta) -> None:
        self._node, self._command, self._count = node, command, count
        self._patience = drain.total_seconds() + PATIENCE
        self._stopping = asyncio.Event()
        self._children: set[asyncio.subprocess.Process] = set()
        self._ready: set[int] = set()
        self._on_ready: Callable[[], None] = lambda: None

    async def run(self, ready: Callable[[], None]) -> None:
        """Until `stop`, and until all of them have ended. `ready` is called once, when each has been ready."""
        self._on_ready = ready
        keepers = [asyncio.create_task(self._keep(number)) for number in range(self._count)]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            # A keeper that ends before that has met a fault: then the whole node ends, in order and with the fault.
            await asyncio.wait([stopping, *keepers], return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            _, left = await asyncio.wait(keepers, timeout=self._patience)
            if left:
                log.error("%d worker processes did not end in %gs: killing them", len(left), self._patience)
                self.kill()
            await asyncio.gather(*keepers)
        finally:
            self.kill()
            stopping.cancel()

    def stop(self) -> None:
        """Have them drain, and `run` return when they have ended."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End what is left, at once."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.send_signal(number)

    async def _keep(self, number: int) -> None:
        """One place in the crew: there is a child in it until the crew stops."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = monotonic()
            try:
                pid, code = await self._one(number)
                what = f"worker process {pid} ended ({_cause(code)})"
            except OSError as error:  # no more processes, no memory: it may pass
                what = f"a worker process could not be started ({error})"
            if self._stopping.is_set():
                return
            pause = FIRST_PAUSE if monotonic() - began > SETTLED else pause
            log.warning("%s; another one starts in %gs", what, pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _one(self, number: int) -> tuple[int, int]:
        """A child's whole life; its pid and exit code."""
        loop = asyncio.get_running_loop()
        alive, held = os.pipe()
        said, ready = os.pipe()
        loop.add_reader(said, self._heard, number, said)
        try:
            try:
                child = await asyncio.create_subprocess_exec(
                    *self._command(Link(self._node, os.getpid(), alive, ready)),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(alive, ready),
                    start_new_session=True,
                )
            finally:
                os.close(alive)
                os.close(ready)
            self._children.add(child)
            if self._stopping.is_set():  # stopped while it was being started
                child.terminate()
            try:
                return child.pid, await child.wait()
            finally:
                self._children.discard(child)
        finally:
            loop.remove_reader(said)
            os.close(said)
            os.close(held)

    def _heard(self, number: int, said: int) -> None:
        if not os.read(said, 1):  # it ended, or has said it
            asyncio.get_running_loop().remove_reader(said)
            return
        self._ready.add(number)
        if len(self._ready) == self._count:
            self._on_ready()
            self._on_ready = lambda: None


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
