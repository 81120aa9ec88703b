"""`fleet.blocking`: the same surface for synchronous code (Flask, Django, scripts).

One background thread with an event loop; each call runs there while the caller waits. It is made from the async surface itself, so there is
no second implementation to keep equal.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import inspect
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any

from fleetcron.declare import Duration
from fleetcron.errors import StoreError
from fleetcron.fleet import Fleet
from fleetcron.lock import Lock
from fleetcron.lockkeeper import ThreadLostEvent
from fleetcron.management import Page
from fleetcron.run import Run
from fleetcron.store.callers import Borrowed, is_async


class BlockingFleet:
    """Every coroutine method of `Fleet`, blocking. Opens on first use; closes at exit or by `close()`. Safe from several threads."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet.twin()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._fleet, name)
        if inspect.isasyncgenfunction(attribute):
            return lambda **filters: self._iterate(attribute, filters)
        if inspect.iscoroutinefunction(attribute):
            return lambda *args, **kwargs: self._call(attribute(*args, **kwargs))
        return attribute

    def submit(self, job: Any, payload: Any = None, *, conn: Any = None, **options: Any) -> Any:
        """Like `Fleet.submit`. `conn`: a synchronous connection; it is used on this thread only."""
        if conn is None:
            return self._call(self._fleet.submit(job, payload, **options))
        return self._call_beside(conn, lambda own: self._fleet.submit(job, payload, conn=own, **options))

    def submit_many(self, job: Any, payloads: Any, *, conn: Any = None, **options: Any) -> Any:
        """Like `Fleet.submit_many`. `conn`: as for `submit`."""
        if conn is None:
            return self._call(self._fleet.submit_many(job, payloads, **options))
        return self._call_beside(conn, lambda own: self._fleet.submit_many(job, payloads, conn=own, **options))

    def lock(self, name: str, ttl: Duration = "30s", wait: Duration | None = None) -> BlockingLock:
        """Like `Fleet.lock`: `with fleet.blocking.lock("reindex") as lock: …`."""
        return BlockingLock(self, self._fleet.lock(name, ttl, wait))

    def __enter__(self) -> BlockingFleet:
        self._start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=loop.run_forever, name="fleetcron-blocking", daemon=True)
                self._thread.start()
                try:
                    asyncio.run_coroutine_threadsafe(self._fleet.open(), loop).result()
                except BaseException:
                    self._end(loop)
                    raise
                self._loop = loop
                atexit.register(self.close)
            return self._loop

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join(timeout=10)
            self._thread = None
        loop.close()

    def close(self) -> None:
        """Disconnect. Idempotent; the next call opens again."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is not None:
                atexit.unregister(self.close)
                try:
                    asyncio.run_coroutine_threadsafe(self._fleet.close(), loop).result(timeout=10)
                finally:
                    self._end(loop)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            loop = self._start()
        except BaseException:
            work.close()
            raise
        answer = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return self._shown(_result(answer))
        except BaseException:
            answer.cancel()  # the caller was interrupted (Ctrl-C): nobody waits for it any more
            raise

    def _call_beside(self, conn: Any, work: Callable[[Borrowed], Coroutine[Any, Any, Any]]) -> Any:
        """Like `_call`, while this thread, to which the connection belongs, does what is to be done with it."""
        if is_async(conn):
            raise TypeError(
                f"conn: {type(conn).__module__}.{type(conn).__name__} belongs to an event loop: use it with the fleet itself, not with "
                "fleet.blocking"
            )
        loop = self._start()
        asked: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        left = threading.Event()

        async def here(call: Callable[[], Any]) -> Any:
            if left.is_set():
                raise InterruptedError("the caller has left, and its connection with it")
            done = loop.create_future()
            asked.put((call, done))
            return await done

        answer = asyncio.run_coroutine_threadsafe(work(Borrowed(conn, here)), loop)
        answer.add_done_callback(lambda _: asked.put(None))
        try:
            while (one := asked.get()) is not None:
                call, done = one
                try:
                    tell, value = done.set_result, call()
                except Exception as error:  # noqa: BLE001  # it goes to whoever asked for the call
                    tell, value = done.set_exception, error
                loop.call_soon_threadsafe(tell, value)
            return self._shown(_result(answer))
        except BaseException:
            left.set()
            answer.cancel()  # the caller was interrupted (Ctrl-C)
            raise

    def _shown(self, value: Any) -> Any:
        if isinstance(value, Run):
            return BlockingRun(self, value)
        if isinstance(value, Page):
            shown = Page(self._shown(v) for v in value)
            shown.next = value.next
            return shown
        return value

    def _iterate(self, pages: Callable[..., Any], filters: dict[str, Any]) -> Iterator[Any]:
        source = pages(**filters)
        while True:
            try:
                yield self._call(anext(source))
            except StopAsyncIteration:
                return


class BlockingRun:
    """A Run whose `wait`, `refresh` and `cancel` block."""

    def __init__(self, fleet: BlockingFleet, run: Run) -> None:
        self._fleet, self._run = fleet, run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def __repr__(self) -> str:
        return repr(self._run)

    def wait(self, timeout: Any = None) -> BlockingRun:
        """Until the run is final. Raises WaitTimeout."""
        self._fleet._call(self._run.wait(timeout))
        return self

    def refresh(self) -> BlockingRun:
        """Take a new snapshot."""
        self._fleet._call(self._run.refresh())
        return self

    def cancel(self) -> str:
        """Ask the run to end."""
        return str(self._fleet._call(self._run.cancel()))


class BlockingLock:
    """A Lock whose methods block; `lost` is a threading.Event. It is renewed in the background like any other."""

    def __init__(self, fleet: BlockingFleet, lock: Lock) -> None:
        self._fleet, self._lock = fleet, lock
        self.lost: threading.Event = ThreadLostEvent()

    @property
    def name(self) -> str:
        return self._lock.name

    @property
    def ttl(self) -> timedelta:
        return self._lock.ttl

    @property
    def fence(self) -> int:
        """The number of this acquisition: higher than that of every one before it. Raises FleetcronError before the first."""
        return self._lock.fence

    def __repr__(self) -> str:
        return repr(self._lock)

    def acquire(self) -> BlockingLock:
        """Take it. Raises LockTimeout, StoreUnavailable, FleetcronError when it is held by this object already."""
        try:
            self._fleet._call(self._lock.acquire())
        except KeyboardInterrupt:
            self.release()  # it may have been taken in this very instant
            raise
        self.lost = ThreadLostEvent(self._lock.hold)
        return self

    def release(self) -> None:
        """Give it back, if it is held and still ours."""
        self._fleet._call(self._lock.release())

    def renew(self) -> bool:
        """Hold it for another ttl from now; False if it is not ours any more."""
        return bool(self._fleet._call(self._lock.renew()))

    def __enter__(self) -> BlockingLock:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _result(answer: concurrent.futures.Future[Any]) -> Any:
    try:
        return answer.result()
    except concurrent.futures.CancelledError:
        raise StoreError("the fleet was closed by another thread during this call") from None


async def _cancel_all() -> None:
    """End the calls of other threads that are under way: they raise, instead of waiting for a loop that has stopped."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
