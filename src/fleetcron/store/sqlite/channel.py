"""A thread that owns a connection, and how coroutines of any event loop send work to it."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from fleetcron.errors import StoreError

T = TypeVar("T")
_MOST_AT_ONCE = 1000


class Request(Generic[T]):
    """Work on its way: what to do, who waits for it, and what came out."""

    __slots__ = ("_future", "error", "loop", "result", "where", "work")

    def __init__(self, where: str, work: Callable[..., T]) -> None:
        self.where, self.work = where, work
        self.loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self.loop.create_future()
        self.result: T | None = None
        self.error: BaseException | None = None

    @property
    def abandoned(self) -> bool:
        """Has the waiting coroutine been cancelled?"""
        return self._future.cancelled()

    def settle(self) -> None:
        """Hand the outcome over. On the request's own loop."""
        if self._future.done():
            return
        if self.error is not None:
            self._future.set_exception(self.error)
        else:
            self._future.set_result(self.result)  # type: ignore[arg-type]

    async def outcome(self) -> T:
        return await self._future


class Channel(ABC):
    """The thread, its connection, and its queue. Safe to call from any number of event loops."""

    def __init__(self, name: str, connection: sqlite3.Connection) -> None:
        self._queue: SimpleQueue[Request[Any] | None] = SimpleQueue()
        self._connection = connection
        self._closing, self._door = False, Lock()
        # A daemon: a program that forgets to close the store still ends.
        self._thread = Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    async def call(self, where: str, work: Callable[..., T]) -> T:
        """Run `work` on the thread and wait for its result; raises what it raises."""
        request = Request(where, work)
        with self._door:  # nothing enters the queue behind the mark of its end
            if self._closing:
                raise closed()
            self._queue.put(request)
        return await request.outcome()

    def shut(self) -> None:
        """Finish what was sent, then close. Returns at once; `join` waits."""
        with self._door:
            self._closing = True
            self._queue.put(None)

    def join(self) -> None:
        self._thread.join()

    @abstractmethod
    def _serve(self, batch: list[Request[Any]]) -> int:
        """Do the work of the first one or more requests, set the result or error of each; returns how many."""

    def _main(self) -> None:
        while (batch := self._waiting()) is not None:
            while batch:
                served = len(batch)
                try:
                    served = self._serve(batch)
                except BaseException as error:  # noqa: BLE001 - a fault of ours must not leave them waiting
                    for request in batch:
                        request.error = error
                deliver(batch[:served])
                batch = batch[served:]
        self._connection.close()

    def _waiting(self) -> list[Request[Any]] | None:
        """Everything that waits now and still has somebody waiting for it; None when it is time to close."""
        first = self._queue.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < _MOST_AT_ONCE:
            try:
                request = self._queue.get_nowait()
            except Empty:
                break
            if request is None:
                self._queue.put(None)
                break
            batch.append(request)
        return [request for request in batch if not request.abandoned]


def deliver(requests: Iterable[Request[Any]]) -> None:
    """Wake the waiting coroutines: one hop to each loop, however many requests."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Request[Any]]] = {}
    for request in requests:
        by_loop.setdefault(request.loop, []).append(request)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, theirs)
        except RuntimeError:  # the loop was closed meanwhile: nobody waits there
            continue


def _settle(requests: list[Request[Any]]) -> None:
    for request in requests:
        request.settle()


def closed() -> StoreError:
    return StoreError("the store is not open: use `async with fleet`, or await fleet.open()")
