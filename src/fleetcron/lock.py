"""Distributed locks with a fence: `async with fleet.lock("reindex", ttl="30s") as lock: …`.

A lock says who should be at it; the fence, a number that only rises, lets the resource refuse whoever no longer is. How: the page
docs/how-to/use-a-lock.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

from fleetcron.clock import monotonic, sleep
from fleetcron.durations import format_duration
from fleetcron.errors import FleetcronError, LockTimeout, StoreError, StoreUnavailable
from fleetcron.lockkeeper import Hold, Keeper, LostEvent, StoreSource
from fleetcron.store.protocol import Took
from fleetcron.threads import off_loop

log = logging.getLogger("fleetcron.lock")

T = TypeVar("T")

SHORTEST_TTL, LONGEST_TTL = timedelta(milliseconds=100), timedelta(days=365)
PLACE = timedelta(seconds=1.5)
"""How long a place in line is kept for somebody who says nothing; who waits says so three times in it. A waiter that dies holds the others
up for that long, one that is only slow is passed by, and before the others again once it has spoken."""
FIRST, BEHIND = 0.25, 0.5
"""Seconds between looks of who is first in line, and of the others. Who is first is also told when its turn has come."""
TRIES = 5
"""How often `wait=0` looks at a lock that is free but in somebody's hands for that instant (another try, the leader's pruning)."""
PATIENCE = 5.0
"""Seconds that giving back may take before it goes on in the background."""


class Lock:
    """A lock by name, not taken yet: `async with` it, or `acquire` and `release`. Not re-entrant, and not for two tasks at once: make another
    with `fleet.lock`.

    name: str, ttl: timedelta. `fence`, `lost`: of the last acquisition.
    """

    def __init__(self, locks: Locks, name: str, ttl: timedelta, wait: timedelta | None) -> None:
        self.name, self.ttl = name, ttl
        self._locks, self._wait = locks, wait
        self._taking = False
        self._hold: Hold | None = None
        self._fence: int | None = None
        self.lost: asyncio.Event = LostEvent()
        """Set when the lock is somebody else's, or may be: its time is up by this process's clock, or the database says so. Each acquisition
        has its own. Stop working then; what is written afterwards must be refused by its fence."""

    @property
    def fence(self) -> int:
        """The number of this acquisition: higher than that of every one before it. Raises FleetcronError before the first."""
        if self._fence is None:
            raise FleetcronError(f"lock {self.name!r} was never acquired, so there is no fence")
        return self._fence

    @property
    def hold(self) -> Hold | None:
        """The present acquisition, for other kinds of `lost`."""
        return self._hold

    async def acquire(self) -> Lock:
        """Take it; returns this object. Raises LockTimeout when it was not free in time, StoreUnavailable, and FleetcronError when it is held
        by this object already."""
        if self._taking or self._hold is not None:
            raise FleetcronError(
                f"lock {self.name!r} is held, or waited for, by this object: make another with fleet.lock"
            )
        self._taking = True
        try:
            self._hold = await self._locks.take(self.name, self.ttl, self._wait)
        finally:
            self._taking = False
        self._fence, self.lost = self._hold.fence, LostEvent(self._hold)
        return self

    async def release(self) -> None:
        """Give it back. Nothing happens when it is not held, or no longer ours; if the database is away it ends by itself, within its ttl."""
        hold, self._hold = self._hold, None
        if hold is not None:
            await self._locks.give_back(hold)

    async def renew(self) -> bool:
        """Hold it for another ttl from now; False if it is not ours any more. It is renewed in the background anyway: this is for who wants to
        be sure before a long step. Raises StoreUnavailable."""
        return self._hold is not None and await self._locks.renew(self._hold)

    async def __aenter__(self) -> Lock:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    def __repr__(self) -> str:
        state = (
            "not held"
            if self._hold is None
            else f"lost, fence {self._fence}"
            if self.lost.is_set()
            else f"fence {self._fence}"
        )
        return f"<Lock {self.name!r} {state}>"


class Locks:
    """The locks of one fleet in this process: taking them, waiting for them, giving them back."""

    def __init__(self, source: StoreSource) -> None:
        self._source, self._keeper = source, Keeper(source)
        self._turns: dict[str, asyncio.Event] = {}  # by owner
        self._asked: dict[str, asyncio.Task[Any]] = {}  # by owner: the statement under way
        self._listening = False
        self._leaving: set[asyncio.Task[bool]] = set()

    async def take(self, name: str, ttl: timedelta, wait: timedelta | None) -> Hold:
        """Raises LockTimeout, StoreUnavailable."""
        owner = secrets.token_hex(16)
        end = None if wait is None else monotonic() + wait.total_seconds()
        try:
            hold = await self._now(name, owner, ttl)
            if hold is None and wait != timedelta(0):
                hold = await self._in_line(name, owner, ttl, end)
            if hold is None:
                raise LockTimeout(
                    f"lock {name!r} was not free within {format_duration(wait)}"
                    if wait
                    else f"lock {name!r} is not free"
                )
            self._keeper.add(hold)
        except BaseException:
            await self._leave(name, owner)
            raise
        return hold

    async def renew(self, hold: Hold) -> bool:
        sent_at = monotonic()
        if hold.lost:
            return False
        if await self._source.store.lock_renew([(hold.name, hold.owner, hold.ttl)]):
            hold.renewed(sent_at)
        else:
            self._keeper.drop(hold)
            hold.lose()
        return not hold.lost

    async def give_back(self, hold: Hold) -> None:
        """When it was not ours any more, its holder is told by `lost`."""
        self._keeper.drop(hold)
        task = self._let_go(hold.name, hold.owner)
        await asyncio.wait({task}, timeout=min(PATIENCE, hold.span))
        if task.done() and not task.cancelled() and not task.result():
            hold.lose()
        hold.end()

    async def close(self) -> None:
        """Give back what is still held; its holders are told that it is lost."""
        left = await off_loop(self._keeper.stop) if self._keeper.started else []
        for hold in left:
            hold.lose()
            self._let_go(hold.name, hold.owner)
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=PATIENCE)
        self._listening = False

    async def _now(self, name: str, owner: str, ttl: timedelta) -> Hold | None:
        for attempt in range(TRIES):
            if attempt:
                await sleep(0.01)
            hold, took = await self._try(name, owner, ttl, None)
            if hold is not None or took.remains is not None or not took.first:
                return hold
        return None

    async def _in_line(self, name: str, owner: str, ttl: timedelta, end: float | None) -> Hold | None:
        """Wait in line until `end`. A database that is away is waited for as well: who waits bounds that by the time it waits."""
        turn = self._turns[owner] = asyncio.Event()
        said = float("-inf")
        try:
            await self._listen()
            while (left := None if end is None else end - monotonic()) is None or left > 0:
                turn.clear()
                try:
                    if monotonic() - said >= PLACE.total_seconds() / 3 - 0.05:
                        said = monotonic()
                        await self._ask(owner, left, self._source.store.lock_wait(name, owner, PLACE))
                    hold, took = await self._try(name, owner, ttl, left)
                    if hold is not None:
                        return hold
                    if took.fence is not None:  # ours, but it took too long to be told: our place went with it
                        said = float("-inf")
                    pause = min(
                        FIRST if took.first else BEHIND, BEHIND if took.remains is None else took.remains + 0.002
                    )
                except StoreUnavailable as error:
                    log.warning("waiting for lock %r: %s", name, error)
                    said, pause = float("-inf"), BEHIND
                try:
                    async with asyncio.timeout(pause if left is None else min(pause, left)):
                        await turn.wait()
                except TimeoutError:
                    pass
        except TimeoutError:
            pass  # a statement took longer than there was time
        finally:
            del self._turns[owner]
        return None

    async def _try(self, name: str, owner: str, ttl: timedelta, left: float | None) -> tuple[Hold | None, Took]:
        sent_at = monotonic()
        take = self._source.store.lock_take(name, owner, socket.gethostname(), os.getpid(), ttl)
        took = await self._ask(owner, left, take)
        hold = None if took.fence is None else Hold(name, owner, took.fence, ttl, sent_at)
        return None if hold is None or hold.lost else hold, took

    async def _ask(self, owner: str, left: float | None, statement: Coroutine[Any, Any, T]) -> T:
        """Its answer, or TimeoutError. A statement is not cancelled, neither then nor with its caller: it might still be done, and after the
        release that is to undo it. `_release` waits for it."""
        task: asyncio.Task[T] = asyncio.create_task(statement)
        self._asked[owner] = task
        await asyncio.wait({task}, timeout=left)
        if not task.done():
            raise TimeoutError
        del self._asked[owner]
        return task.result()

    async def _listen(self) -> None:
        if not self._listening:
            await self._source.store.listen_locks(self._woken)
            self._listening = True

    def _woken(self, owner: str) -> None:
        """It is this owner's turn; "": it may be anybody's."""
        for turn in self._turns.values() if not owner else filter(None, [self._turns.get(owner)]):
            turn.set()

    async def _leave(self, name: str, owner: str) -> None:
        """Whatever this owner has in the database goes, also if we are being cancelled."""
        await asyncio.wait({self._let_go(name, owner)}, timeout=BEHIND)

    def _let_go(self, name: str, owner: str) -> asyncio.Task[bool]:
        task = asyncio.create_task(self._release(name, owner))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _release(self, name: str, owner: str) -> bool:
        if (asked := self._asked.pop(owner, None)) is not None:
            await asyncio.wait({asked})
            with suppress(StoreError):
                asked.result()
        try:
            return await self._source.store.lock_release(name, owner)
        except StoreError as error:
            log.warning("lock %r could not be given back, it will end by itself: %s", name, error)
            return True
