"""The child process: runs handlers in its main thread, one after another; a second thread listens to its worker.

It dies with its worker. It knows nothing of time: the worker tells it to stop, by a frame, then SIGTERM, then SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import itertools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from queue import SimpleQueue
from typing import Any, NoReturn

from fleetcron import errors
from fleetcron.errors import ConfigError, FleetcronError, LeaseLost
from fleetcron.handlers import Handler
from fleetcron.payload import encode_result
from fleetcron.worker.context import BlockingContext, Context, RunFacts
from fleetcron.worker.executors import wire
from fleetcron.worker.executors.errors import HandlerStopped, HandlerTimeout, contained
from fleetcron.worker.executors.reference import Reference, load
from fleetcron.worker.executors.remote import describe

HIGH_FDS = (800, 400, 200, 100)
"""Where the socket is moved: handlers that close or write descriptors by number mean the low ones."""
PR_SET_PDEATHSIG = 1
KNOWS = 0.2  # seconds that a SIGTERM waits for the frame that announces it

log = logging.getLogger("fleetcron.worker")


def main() -> None:
    """The program of a child: `child.py SOCKET ALIVE PARENT` (two descriptors and a pid)."""
    link, alive, parent = map(int, sys.argv[1:4])
    die_with(parent, _high(alive))
    ChildProcess(socket.socket(fileno=_high(link)), parent).serve()


def die_with(parent: int, alive: int) -> None:
    """Let the kernel kill this process, and what it started, when its parent is dead.

    On Linux that needs no thread of ours to get the GIL: the read end of a pipe whose only writer is the parent sends
    SIGKILL to the group when it ends (F_SETSIG). A parent that forked left a second writer behind; for that case
    PR_SET_PDEATHSIG sends SIGTERM, which `ChildProcess` understands. Not SIGKILL: it may arrive before the pipe ends
    (a thread of the parent ends first), and would then leave what this process started alive. Elsewhere the listening
    thread sees the end of its socket.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with contextlib.suppress(OSError):  # a kernel without it
        fcntl.fcntl(alive, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(alive, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(alive, fcntl.F_SETFL, fcntl.fcntl(alive, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    if os.getppid() != parent:  # it died before all this was set up
        _die()


class ChildProcess:
    """One per process."""

    def __init__(self, link: socket.socket, parent: int) -> None:
        self._link = link
        self._parent = parent
        self._secret, first = self._receive(None)
        hello = wire.decode_to_child(first)
        assert isinstance(hello, wire.Hello)
        self._hello = hello
        self._sending = threading.Lock()
        self._runs: SimpleQueue[wire.Run | None] = SimpleQueue()
        self._replies: dict[int, SimpleQueue[wire.Reply]] = {}
        self._ids = itertools.count(1)
        self._handlers: dict[tuple[Reference, str], Handler] = {}
        self._context: BlockingContext | Context | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # while an async handler runs
        self._task: asyncio.Task[Any] | None = None
        self._stop: wire.Stop | None = None
        self._told_to_stop = threading.Event()
        # Of the main thread only, which is where signal handlers run. `_armed`: a handler is being called, so a SIGTERM
        # becomes an exception, once. `_held`: half a frame must not be left behind, so it becomes one a little later.
        self._main = threading.get_ident()
        self._armed = False
        self._held = False
        self._late = False
        sys.argv[:] = hello.argv
        os.register_at_fork(after_in_child=self._forked)

    def serve(self) -> None:
        """Run what comes, until the worker says goodbye."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        threading.Thread(target=self._listen, name="fleetcron-link", daemon=True).start()
        while (run := self._runs.get()) is not None:
            answer = self._attempt(run)
            self._context = None
            for stream in (sys.stdout, sys.stderr):  # a later SIGKILL would take what is still buffered
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            self.send(answer)

    # ── a run ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _attempt(self, run: wire.Run) -> wire.Returned | wire.Raised:
        try:
            value = self._called(run)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its run's end, not the child's
            if not isinstance(error, Exception):
                error = contained(error).with_traceback(error.__traceback__)
            return wire.Raised(describe(error, self._hello.max_error))
        return wire.Returned(encode_result(value, max_bytes=self._hello.max_result))

    def _called(self, run: wire.Run) -> Any:
        handler = self._handler(run)
        arguments = handler.arguments(run.payload)
        context = self._context = self._new_context(handler, run.facts)
        signal.signal(signal.SIGTERM, self._on_sigterm)  # each time: the last handler may have set its own
        self.send(wire.Started())
        try:
            self._armed = True
            value = handler.call(context, arguments)
            if asyncio.iscoroutine(value):
                value = asyncio.run(self._awaited(value))
        finally:
            self._armed = False
        return context.result if value is None and context is not None else value

    async def _awaited(self, call: Coroutine[Any, Any, Any]) -> Any:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            return await call
        finally:
            self._loop = self._task = None

    def _handler(self, run: wire.Run) -> Handler:
        key = (run.reference, run.name)
        handler = self._handlers.get(key)
        if handler is None:
            handler = self._handlers[key] = Handler(load(run.reference), run.name)
            if not logging.getLogger().handlers:  # the app's modules had their chance
                logging.basicConfig(level=self._hello.log_level)
        return handler

    def _new_context(self, handler: Handler, facts: RunFacts | None) -> BlockingContext | Context | None:
        if not handler.takes_context:
            return None
        if facts is None:
            raise ConfigError(f"job {handler.name!r} takes a context in the child process, but not in the worker")
        return Context(facts, AsyncPipe(self)) if handler.is_async else BlockingContext(facts, Pipe(self))

    def _on_sigterm(self, *_: object) -> None:
        if os.getppid() != self._parent:
            _die()
        # Announced by our worker only. Service managers signal whole control groups; then the worker drains, and it
        # alone says whether this run has to end.
        if not self._told_to_stop.wait(KNOWS):
            return
        if self._held:
            self._late = True
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        if not self._armed:
            return
        self._armed = False
        if self._loop is not None and self._task is not None:
            # An exception out of a signal handler may surface in a callback, where asyncio logs and swallows it.
            self._loop.call_soon_threadsafe(self._task.cancel)
            return
        timeout = self._stop.timeout if self._stop is not None else None
        if timeout is not None:
            raise HandlerTimeout(timeout)
        raise HandlerStopped("the run was asked to stop")

    # ── the socket ───────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, frame: wire.ToParent) -> None:
        """One frame, whole. From any thread."""
        data = wire.pack(self._secret, frame)
        if threading.get_ident() != self._main:
            with self._sending:
                self._link.sendall(data)
            return
        self._held = True
        try:
            with self._sending:
                self._link.sendall(data)
        finally:
            self._held = False
        if self._late:
            self._late = False
            self._interrupt()

    def ask(self, run_id: int, method: str, **arguments: Any) -> str | None:
        """Ask the engine, wait for the answer; its error is raised."""
        number = next(self._ids)
        answer = self._replies[number] = SimpleQueue()
        try:
            self.send(wire.Call(number, run_id, method, **arguments))
            reply = answer.get()
        finally:
            self._replies.pop(number, None)
        if reply.error is not None:
            raise _error(*reply.error)
        return reply.value

    def _listen(self) -> None:
        try:
            while True:
                _, body = self._receive(self._secret)
                self._received(wire.decode_to_child(body))
        finally:  # the worker is gone, or nothing makes sense any more
            _die()

    def _received(self, frame: wire.ToChild) -> None:
        match frame:
            case wire.Run():
                self._runs.put(frame)
            case wire.Bye():
                self._runs.put(None)
            case wire.Reply():
                if (answer := self._replies.get(frame.id)) is not None:
                    answer.put(frame)
            case wire.Stop():
                self._stop = frame
                self._told_to_stop.set()
                self._announce()

    def _announce(self) -> None:
        """Set `ctx.cancelled`, then say that Stop has been read: SIGTERM follows."""
        context, loop = self._context, self._loop
        if isinstance(context, Context) and loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(context.stop)
                # after what waits for the event has been woken: a cancellation that comes first would swallow that
                loop.call_soon_threadsafe(loop.call_soon, self.send, wire.Stopping())
            return
        if isinstance(context, BlockingContext):
            context.cancelled.set()
        self.send(wire.Stopping())

    def _receive(self, secret: bytes | None) -> tuple[bytes, bytes]:
        head = self._exactly(wire.HEADER.size)
        theirs, length = wire.HEADER.unpack(head)
        if secret is not None and theirs != secret:
            raise wire.Garbled
        return theirs, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._link.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _forked(self) -> None:
        """In a fork that the handler makes: it is not this child, and does not speak for it."""
        self._link.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Pipe:
    """`BlockingServices` over the socket."""

    __slots__ = ("_child",)

    def __init__(self, child: ChildProcess) -> None:
        self._child = child

    def step_get(self, run: RunFacts, name: str) -> str | None:
        return self._child.ask(run.run_id, "step_get", name=name)

    def step_put(self, run: RunFacts, name: str, json: str) -> None:
        self._child.ask(run.run_id, "step_put", name=name, json=json)

    def progress(self, run: RunFacts, done: float, total: float | None, note: str | None) -> None:
        try:
            self._child.ask(run.run_id, "progress", done=done, total=total, note=note)
        except LeaseLost:
            raise
        except FleetcronError as error:
            log.warning("run %d: progress was not kept: %s", run.run_id, error)


class AsyncPipe:
    """`Services` over the socket, for an async handler in a child."""

    __slots__ = ("_child", "kind")

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self.kind = "postgres"  # so that `transaction` is asked, and says what there is to say

    async def step_get(self, run_id: int, name: str) -> str | None:
        return await asyncio.to_thread(self._child.ask, run_id, "step_get", name=name)

    async def step_put(self, run: RunFacts, name: str, json: str) -> None:
        await asyncio.to_thread(self._child.ask, run.run_id, "step_put", name=name, json=json)

    async def progress(self, run: RunFacts, done: float, total: float | None, note: str | None) -> None:
        await asyncio.to_thread(self._child.ask, run.run_id, "progress", done=done, total=total, note=note)

    def transaction(self, context: Context) -> AbstractAsyncContextManager[Any]:
        raise ConfigError(f"ctx.transaction() needs executor='async'; job {context.job!r} runs in a child process")


def _error(name: str, message: str) -> FleetcronError:
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, FleetcronError):
        return FleetcronError(f"{name}: {message}")
    error = kind.__new__(kind, message)
    error.args = (message,)
    return error


def _high(fd: int) -> int:
    for least in HIGH_FDS:
        with contextlib.suppress(OSError):  # beyond the limit of open files
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
            os.close(fd)
            return high
    return fd


def _die() -> NoReturn:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
