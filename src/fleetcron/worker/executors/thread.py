"""Handlers in threads, for blocking code that is harmless when it goes on too long: a thread cannot be stopped.

Not concurrent.futures: its threads are joined when the interpreter ends, so one handler that never returns would keep
a worker from ever ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from queue import SimpleQueue
from typing import Any, TypeVar

from fleetcron.errors import ConfigError, FleetcronError, LeaseLost
from fleetcron.handlers import Handler
from fleetcron.worker.context import BlockingContext, RunFacts, Services
from fleetcron.worker.executors.errors import contained

log = logging.getLogger("fleetcron.worker")

T = TypeVar("T")
_Answer = tuple[Any, BaseException | None]
_Call = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[_Answer]"]


class ThreadExecutor:
    """Runs plain functions in at most `slots` threads, plus those whose run was given up and that have not returned."""

    def __init__(self, services: Services, *, slots: int) -> None:
        self._services = services
        self._slots = asyncio.Semaphore(slots)
        self._idle: list[_Thread] = []
        self._busy: set[_Thread] = set()
        self._contexts: set[BlockingContext] = set()

    async def run(self, handler: Handler, facts: RunFacts | None, payload: str, *, timeout: float | None) -> Any:
        """See Executor. A `timeout` is refused (ConfigError). Cancelling sets `ctx.cancelled` and abandons the wait."""
        if timeout is not None:
            raise ConfigError(f"job {handler.name!r}: a thread cannot be stopped, so timeout= needs executor='process'")
        arguments = handler.arguments(payload)
        context: BlockingContext | None = None
        loop = asyncio.get_running_loop()
        if handler.takes_context:
            assert facts is not None
            context = BlockingContext(facts, LoopServices(loop, self._services))
        async with self._slots:
            thread = self._idle.pop() if self._idle else _Thread()
            variables = contextvars.copy_context()
            self._busy.add(thread)
            if context is not None:
                self._contexts.add(context)
            try:
                call = functools.partial(variables.run, handler.call, context, arguments)
                value, error = await thread.call(call, loop)
            except asyncio.CancelledError:
                thread.retire()
                if context is not None:
                    context.cancelled.set()
                log.warning("job %s: its thread goes on until the handler returns; nobody waits for it", handler.name)
                raise
            else:
                self._idle.append(thread)
            finally:
                self._busy.discard(thread)
                if context is not None:
                    self._contexts.discard(context)
        if isinstance(error, Exception):
            raise error
        if error is not None:
            raise contained(error) from error
        if inspect.iscoroutine(value):
            value.close()
            raise ConfigError(f"job {handler.name!r}: the handler returned a coroutine; declare it with `async def`")
        return context.result if value is None and context is not None else value

    async def close(self) -> None:
        """Let idle threads end and tell running handlers; waits for nobody."""
        for context in self._contexts:
            context.cancelled.set()
        for thread in [*self._idle, *self._busy]:
            thread.retire()
        self._idle.clear()


class LoopServices:
    """`Services` for a thread: each call runs on the worker's event loop while the thread waits."""

    __slots__ = ("_loop", "_services")

    def __init__(self, loop: asyncio.AbstractEventLoop, services: Services) -> None:
        self._loop = loop
        self._services = services

    def step_get(self, run: RunFacts, name: str) -> str | None:
        return self._wait(run, self._services.step_get(run.run_id, name))

    def step_put(self, run: RunFacts, name: str, json: str) -> None:
        self._wait(run, self._services.step_put(run, name, json))

    def progress(self, run: RunFacts, done: float, total: float | None, note: str | None) -> None:
        try:
            self._wait(run, self._services.progress(run, done, total, note))
        except LeaseLost:
            raise
        except FleetcronError as error:
            log.warning("run %d: progress was not kept: %s", run.run_id, error)

    def _wait(self, run: RunFacts, call: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            call.close()
            raise LeaseLost(f"run {run.run_id}: its worker has ended")
        try:
            return asyncio.run_coroutine_threadsafe(call, self._loop).result()
        except CancelledError:
            raise LeaseLost(f"run {run.run_id}: its worker is ending") from None


class _Thread:
    """A thread that takes one call after another. A daemon: it never keeps the process alive."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._serve, name="fleetcron-handler", daemon=True).start()

    def call(self, fn: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> asyncio.Future[_Answer]:
        """Run `fn` there; what it returned or raised."""
        answer: asyncio.Future[_Answer] = loop.create_future()
        self._calls.put((fn, loop, answer))
        return answer

    def retire(self) -> None:
        """End after the call that it is in."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            fn, loop, answer = call
            value = error = None
            try:
                value = fn()
            except BaseException as raised:  # noqa: BLE001 - the handler may raise anything; the caller gets it
                error = raised
            try:
                loop.call_soon_threadsafe(_settle, answer, (value, error))
            except RuntimeError:  # the loop has ended: nobody is there to tell
                return
            del call, fn, loop, answer, value, error  # an idle thread keeps nothing of the last run alive


def _settle(future: asyncio.Future[_Answer], answer: _Answer) -> None:
    if not future.done():
        future.set_result(answer)
