"""What the electors with a server of their own share: one key per shard, and who holds it is nominated.

What a node may trust: a key is its own until the moment it *sent* the last request that renewed it, plus the ttl, minus a margin, on a
clock that nobody sets (as with the terms, `scheduler.leadership`); and not at all once a request has failed. It then tries again with a
growing pause that stays below the ttl. One request renews all keys, so the cost does not grow with the shards.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from fleetcron.clock import monotonic, sleep, wall_now
from fleetcron.election.errors import ElectorUnreachable
from fleetcron.model import ElectorState

log = logging.getLogger("fleetcron.election")

MARGIN = 0.1
"""Share of a ttl that is not used: clocks of two machines may run that much apart."""
_NOT_YET = "not reached yet"
_FIRST_PAUSE = 0.05
_STOP_WITHIN = 2.0


class KeyElector(ABC):
    """Holds the keys that `stand` asks for, in a task on the loop that called `start`."""

    def __init__(self, name: str, where: str, node: str, ttl: float) -> None:
        """`where`: the servers, for people."""
        self.name, self._where, self._node, self._ttl = name, where, node, ttl
        self._keep: frozenset[int] = frozenset()
        self._free: tuple[int, ...] = ()
        self._most = 0
        self._held: frozenset[int] = frozenset()
        self._trusted_until = float("-inf")
        self._trouble: str | None = _NOT_YET
        self._told, self._since = False, wall_now()  # the last state that was asked for, and when it began
        self._pause: float | None = None  # seconds between the last try and the next
        self._changed: Callable[[], None] = lambda: None
        self._hurry = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    # what the server-specific part does
    @abstractmethod
    async def _open(self) -> None:
        """Connect. Raises ElectorUnreachable."""

    @abstractmethod
    async def _hold(self, keep: frozenset[int], free: Sequence[int], most: int) -> set[int]:
        """Renew what is held, give back what is neither in `keep` nor in `free`, hold up to `most` of the `free` (of more, the lowest); the
        shards now held. What is held comes first in `free`.
        Raises ElectorUnreachable when any of it is in doubt, within a third of a ttl or so."""

    @abstractmethod
    async def _close(self, *, leave: bool) -> None:
        """Drop the connection; `leave`: give every key back first. Never fails, bounded by a second or two."""

    # the protocol
    async def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._task = asyncio.create_task(self._run(), name=f"fleetcron-{self.name}-elector")

    async def stop(self) -> None:
        self._stopping = True
        self._hurry.set()
        if self._task is not None:
            _, pending = await asyncio.wait([self._task], timeout=_STOP_WITHIN + self._ttl / 3)
            for task in pending:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._held = frozenset()

    def stand(self, keep: Collection[int], free: Sequence[int], most: int) -> None:
        wish = (frozenset(keep), tuple(free), most)
        if wish != (self._keep, self._free, self._most):
            self._keep, self._free, self._most = wish
            if not self._held <= self._keep or most:
                self._hurry.set()

    def nominated(self, shard: int) -> bool:
        return shard in self._held and self._certain()

    def reached(self) -> bool:
        return self._certain()

    def state(self) -> ElectorState:
        reached = self._certain()
        if reached != self._told:
            self._told, self._since = reached, wall_now()
        error = None if reached else self._trouble or "no answer within the ttl"
        pause = None if reached or self._pause is None else timedelta(milliseconds=round(self._pause * 1000))
        return ElectorState(
            kind=self.name, where=self._where, reached=reached, since=self._since, error=error, retry_in=pause
        )

    def _certain(self) -> bool:
        """May what the server said last still be believed? The server-specific part may know better."""
        return self._trouble is None and monotonic() < self._trusted_until

    # the task
    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping:
            try:
                await self._open()
                while not self._stopping:
                    await self._renew()
                    pause, self._pause = _FIRST_PAUSE, None
                    await self._rest(self._ttl / 3)
            except ElectorUnreachable as error:
                self._pause = pause
                self._doubt(str(error))
                await self._close(leave=False)
                await sleep(pause * random.uniform(0.5, 1))
                pause = min(pause * 2, self._ttl / 2)
        await self._close(leave=True)

    async def _renew(self) -> None:
        self._hurry.clear()
        sent = monotonic()
        ours = sorted(self._held.intersection(self._free))
        others = [shard for shard in self._free if shard not in self._held]
        free = ours + random.sample(
            others, len(others)
        )  # every node in an order of its own: fewer ask for the same one
        held = frozenset(await self._hold(self._keep, free, self._most))
        if self._trouble is not None:
            log.info("%s at %s is reached", self.name, self._where)
        news = held != self._held or self._trouble is not None
        self._trouble, self._held = None, held
        self._trusted_until = sent + self._ttl * (1 - MARGIN)
        if news:
            self._changed()

    def _doubt(self, why: str) -> None:
        """Nobody is nominated from this moment on."""
        news = self._trouble is None or self._trouble == _NOT_YET
        self._trouble, self._held = why, frozenset()
        if news:
            log.warning("%s", self.state().words())
        self._changed()

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            pass
