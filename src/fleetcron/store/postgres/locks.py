"""Locks for users, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fleetcron.model import HeldLock
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.protocol import Took


class Locks(PostgresBase):
    """The part of the store that locks use. Every write names (name, owner), and an owner is random for each acquisition."""

    async def lock_take(self, name: str, owner: str, host: str, pid: int, ttl: timedelta) -> Took:
        """Take a lock, if nobody holds it and nobody stands before us in its line. Again under the same owner: a new fence."""
        row = await self.db.fetchrow("lock_take", self.clock_now(), name, owner, host, pid, ttl)
        assert row is not None
        return Took(row[0], row[1], row[2])

    async def lock_wait(self, name: str, owner: str, place: timedelta) -> None:
        """Stand in the line of a lock, from now on or still; the place lapses after `place`."""
        await self.db.fetch("lock_wait", self.clock_now(), name, owner, place)

    async def lock_renew(self, held: Sequence[tuple[str, str, timedelta]]) -> set[str]:
        """Renew locks, each (name, owner, ttl); the owners whose lock is still theirs."""
        columns = ([h[0] for h in held], [h[1] for h in held], [h[2] for h in held])
        return {row[0] for row in await self.db.fetch("lock_renew", self.clock_now(), *columns)}

    async def lock_release(self, name: str, owner: str) -> bool:
        """Give a lock back and leave its line; was the lock still ours? If not, nothing happens to it."""
        return bool(await self.db.fetchval("lock_release", self.clock_now(), name, owner))

    async def lock_prune(self) -> None:
        """Forget locks that have expired, and places that lapsed a while ago."""
        await self.db.fetch("lock_prune", self.clock_now())

    async def locks(self) -> list[HeldLock]:
        return [HeldLock(**dict(row)) for row in await self.db.fetch("locks", self.clock_now())]
