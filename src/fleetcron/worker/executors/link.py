"""A worker's end of a child process: start it, talk to it, stop it, notice its death.

A child leads a session and a process group of its own, so that a stop reaches what it started, and a terminal's Ctrl-C
does not reach it. The parent owns the clock: nothing in the child has to work for a stop to succeed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fleetcron.errors import ConfigError
from fleetcron.worker.context import RunFacts
from fleetcron.worker.executors import wire
from fleetcron.worker.executors.errors import ChildDied
from fleetcron.worker.executors.reference import check_not_importing

# The parent's import path is set before anything is imported: `-m` would put the current directory in front of it.
_PROGRAM = (
    "import os, sys; sys.path[:] = os.environ.pop('FLEETCRON_CHILD_PATH').split(os.pathsep); "
    "from fleetcron.worker.executors.child import main; main()"
)
START_LIMIT = 60.0  # seconds from the frame to the call: importing the app is not the handler's time, nor endless
NOTICE = 0.1  # seconds for the child to read Stop before SIGTERM; it takes one thread switch, 5 ms in a busy child
LAST_WORDS = 0.2  # seconds from the end of a process to the end of what it wrote, or the other way round
REAP = 2.0  # seconds for the kernel to end what got SIGKILL


class Expired(msgspec.Struct, frozen=True):
    """The run's timeout passed before the child answered."""


Answer = wire.Returned | wire.Raised | ChildDied | Expired


class Child(asyncio.Protocol):
    """One child process, used from one event loop; `kill` from any thread."""

    def __init__(self, on_call: Callable[[Child, wire.Call], None], on_gone: Callable[[Child], None]) -> None:
        self._on_call = on_call
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._secret = secrets.token_bytes(wire.SECRET_BYTES)
        self._unpacker = wire.Unpacker(self._secret)
        self._lock = threading.Lock()  # between `kill` and the reaping, after which the pid may be somebody else's
        self._reaped = False
        self._end: ChildDied | None = None
        self._note = ""
        self._transport: Any = None
        self._alive_fd = -1
        self._timer: asyncio.TimerHandle | None = None
        self._timeout: float | None = None
        self._answer: asyncio.Future[Answer] = self._loop.create_future()
        self._last: asyncio.Future[None] = (
            self._loop.create_future()
        )  # the run is over in the child, whatever was decided
        self._noticed: asyncio.Future[None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.started = False
        self.facts: RunFacts | None = None
        self._process = self._spawn()
        self.pid = self._process.pid

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _spawn(self) -> subprocess.Popen[bytes]:
        check_not_importing()
        if not sys.executable:
            raise ConfigError("executor='process' needs an interpreter to start, but sys.executable is empty")
        self._socket, theirs = socket.socketpair()
        # Nobody writes into this pipe: its end is how the kernel tells the child that the parent is dead.
        alive, self._alive_fd = os.pipe()
        path = os.pathsep.join(str(entry or Path.cwd()) for entry in sys.path)
        try:
            return subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), str(alive), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), alive),
                start_new_session=True,
                env=os.environ | {"FLEETCRON_CHILD_PATH": path},
            )
        except BaseException:
            self._socket.close()
            os.close(self._alive_fd)
            raise
        finally:
            theirs.close()
            os.close(alive)

    async def open(self, *, max_result: int, max_error: int) -> None:
        """Connect to the process, which is running already."""
        threading.Thread(target=self._watch, name=f"fleetcron-child-{self.pid}", daemon=True).start()
        try:
            await self._loop.create_unix_connection(lambda: self, sock=self._socket)
        except BaseException:
            self.kill()
            self._socket.close()
            raise
        self._send(wire.Hello(sys.argv, logging.getLogger().getEffectiveLevel(), max_result, max_error))

    @property
    def ended(self) -> bool:
        return self._reaped or self._end is not None or self._transport is None or self._transport.is_closing()

    def bye(self) -> None:
        """Ask an idle child to end."""
        self._send(wire.Bye())

    def kill(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """Signal the whole process group. From any thread."""
        with self._lock:
            if not self._reaped:
                self._signal_group(sign)

    async def stop(self, timeout: float | None, grace: float) -> None:
        """Stop the run: tell the child, SIGTERM to the group, SIGKILL after `grace` seconds. The child does not
        survive it: what its handler started and left behind would."""
        if self.started and not self._last.done():
            self._send(wire.Stop(timeout))
            await asyncio.wait([self._noticed, self.gone], timeout=NOTICE, return_when=asyncio.FIRST_COMPLETED)
            self.kill(signal.SIGTERM)
            await asyncio.wait([self._last, self.gone], timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        self.kill()
        await asyncio.wait([self.gone], timeout=REAP)

    def _watch(self) -> None:
        """The process's own thread: the only portable wait for its end that needs neither polling nor SIGCHLD."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS before Python 3.13; a kill in the instant of the end may miss the group there
            self._process.wait()
        with self._lock:
            self._signal_group(signal.SIGKILL)  # what it started ends with it; its pid is still taken, so this is safe
            code = self._process.wait()
            self._reaped = True
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is there to tell
            self._loop.call_soon_threadsafe(self._exited, code)

    def _signal_group(self, sign: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, sign)

    def _exited(self, code: int) -> None:
        os.close(self._alive_fd)
        self._end = ChildDied(None if code < 0 else code, -code if code < 0 else None, self._note)
        if self._transport is None or self._transport.is_closing():
            self._finish()
        else:  # it may have answered before it ended
            self._loop.call_later(LAST_WORDS, self._finish)

    def _finish(self) -> None:
        if self._end is None or self.gone.done():
            return
        self._decide(self._end)
        self.gone.set_result(None)
        if self._transport is not None:
            self._transport.abort()
        self._on_gone(self)

    # ── a run ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, run: wire.Run, timeout: float | None) -> asyncio.Future[Answer]:
        """Run it; what came first of the child's answer, the timeout and the child's death."""
        self._answer = self._loop.create_future()
        self._last = self._loop.create_future()
        self.started = False
        self.facts = run.facts
        self._timeout = timeout
        if self._end is not None:
            self._decide(self._end)
        else:
            self._timer = self._loop.call_later(START_LIMIT, self._never_started)
            self._send(run)
        return self._answer

    def reply(self, reply: wire.Reply) -> None:
        """Answer a Call."""
        self._send(reply)

    def _decide(self, answer: Answer) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._answer.done():
            self._answer.set_result(answer)
        if not isinstance(answer, Expired) and not self._last.done():
            self._last.set_result(None)

    def _never_started(self) -> None:
        self._note = f"after {START_LIMIT:g}s it had not begun; does importing the handler's module block?"
        self.kill()

    # ── the socket ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, frame: wire.ToChild) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(wire.pack(self._secret, frame))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._unpacker.feed(data):
                self._received(wire.decode_to_parent(body))
        except (wire.Garbled, msgspec.DecodeError):
            self._note = "something other than fleetcron wrote into its connection to the worker"
            self.kill()

    def _received(self, frame: wire.ToParent) -> None:
        match frame:
            case wire.Started():
                self.started = True
                if self._timer is not None:
                    self._timer.cancel()
                    timeout = self._timeout
                    self._timer = None if timeout is None else self._loop.call_later(timeout, self._decide, Expired())
            case wire.Returned() | wire.Raised():
                self._decide(frame)
            case wire.Call():
                self._on_call(self, frame)
            case wire.Stopping():
                if not self._noticed.done():
                    self._noticed.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._finish()
        else:  # a process that lost its connection is of no use; mostly it is just about to end
            self._loop.call_later(LAST_WORDS, self._orphaned)

    def _orphaned(self) -> None:
        if not self._reaped:
            self._note = self._note or "it closed its connection to the worker"
            self.kill()
