"""The database as the parts of the store see it: `read`, `write`, `flow`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from fleetcron.errors import StoreUnavailable
from fleetcron.store.sqlite.channel import Channel, closed
from fleetcron.store.sqlite.connection import Options, translated
from fleetcron.store.sqlite.reader import Reader
from fleetcron.store.sqlite.session import Session
from fleetcron.store.sqlite.statements import load_statements
from fleetcron.store.sqlite.tx import SqliteTx
from fleetcron.store.sqlite.watcher import Bell
from fleetcron.store.sqlite.writer import Writer
from fleetcron.threads import off_loop

T = TypeVar("T")


class Database:
    """One writer and two readers, each a thread with a connection: `quick` for what workers wait for, `slow` for what
    people look at.

    A database in memory has one connection, and so the writer reads too.
    """

    def __init__(self, options: Options, shards: int, bell: Bell) -> None:
        self.options, self.shards, self.bell = options, shards, bell
        self.statements = load_statements()
        self._writer: Writer | None = None
        self._quick: Channel | None = None
        self._slow: Channel | None = None
        self._opening = asyncio.Lock()

    @property
    def path(self) -> Path | None:
        """The file; None in memory."""
        return self.options.location.path

    async def open(self) -> None:
        """Open the file, making it if there is none. Raises StoreUnavailable."""
        async with self._opening:
            if self._quick is None:
                with translated("open", self.options.location):
                    try:
                        await asyncio.to_thread(self._connect)
                    except BaseException:
                        await self.close()
                        raise

    def _connect(self) -> None:
        if not self.options.read_only:
            self._writer = Writer(self.options, self.statements, self.bell.ring)
        if self.path is None:
            self._quick = self._slow = self._writer
        else:
            self._quick = Reader("fleetcron-quick-reader", self.options, self.statements)
            self._slow = Reader("fleetcron-slow-reader", self.options, self.statements)

    async def close(self) -> None:
        """Finish what was sent, then close. The last process to close copies the write-ahead log into the file and
        removes it."""
        channels = {channel for channel in (self._quick, self._slow, self._writer) if channel is not None}
        self._writer = self._quick = self._slow = None
        for channel in channels:
            channel.shut()
        for channel in channels:
            await off_loop(channel.join)

    async def read(self, where: str, work: Callable[[Session], T], *, slow: bool = False) -> T:
        """Run `work`, which only reads, on a reader's thread. Raises StoreUnavailable and StoreError."""
        channel = self._slow if slow else self._quick
        if channel is None:
            raise closed()
        return await channel.call(where, work)

    async def write(self, where: str, work: Callable[[Session], T]) -> T:
        """Run `work` in a transaction on the writer's thread; back after its commit. It may be run twice (the
        first time undone), so it must do nothing but use its session. Raises StoreUnavailable and StoreError."""
        if self._writer is None:
            if self._quick is None:
                raise closed()
            raise StoreUnavailable(f"{where}: {self.options.location} was opened read-only")
        return await self._writer.call(where, work)

    async def flow(self, where: str, make: Callable[[SqliteTx], Coroutine[Any, Any, T]]) -> T:
        """Run one of `store.flows` in a transaction. All of it runs on the writer's thread: its steps are calls
        there, not messages, so a busy event loop never holds the file's lock between two steps."""
        return await self.write(where, lambda session: drive(make(SqliteTx(session, self.shards))))


def drive(flow: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits nothing but the steps of a SqliteTx, which never suspend."""
    try:
        flow.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    flow.close()
    raise RuntimeError("a flow waited for something that is not a step of its transaction")
