"""Locks for users, on SQLite: the one writer is the mutex."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fleetcron.clock import from_us
from fleetcron.model import HeldLock
from fleetcron.store.protocol import Took
from fleetcron.store.sqlite.base import SqliteBase
from fleetcron.store.sqlite.session import Session, us

_LAPSED = timedelta(seconds=30)


class Locks(SqliteBase):
    """The part of the store that locks use. Every write names (name, owner), and an owner is random for each acquisition."""

    async def lock_take(self, name: str, owner: str, host: str, pid: int, ttl: timedelta) -> Took:
        """Take a lock, if nobody holds it and nobody stands before us in its line. Again under the same owner: a new fence."""
        seen = await self.db.read("lock_take", lambda session: _look(session, name, owner))
        if seen.remains is not None or not seen.first:
            return seen  # the usual case of those who wait: it costs no write lock
        return await self.db.write("lock_take", lambda session: _take(session, name, owner, host, pid, ttl))

    async def lock_wait(self, name: str, owner: str, place: timedelta) -> None:
        """Stand in the line of a lock, from now on or still; the place lapses after `place`."""
        await self.db.write("lock_wait", lambda s: s.execute("lock_wait", s.now, name, owner, us(place)))

    async def lock_renew(self, held: Sequence[tuple[str, str, timedelta]]) -> set[str]:
        """Renew locks, each (name, owner, ttl); the owners whose lock is still theirs."""
        return await self.db.write("lock_renew", lambda session: _renew(session, held))

    async def lock_release(self, name: str, owner: str) -> bool:
        """Give a lock back and leave its line; was the lock still ours? If not, nothing happens to it."""
        return await self.db.write("lock_release", lambda session: _release(session, name, owner))

    async def lock_prune(self) -> None:
        """Forget locks that have expired, and places that lapsed a while ago."""
        await self.db.write("lock_prune", _prune)

    async def locks(self) -> list[HeldLock]:
        found = await self.db.read("locks", lambda session: session.records("locks", session.now))
        times = ("acquired_at", "expires_at")
        return [HeldLock(**(row | {name: from_us(row[name]) for name in times})) for row in found]


def _look(session: Session, name: str, owner: str) -> Took:
    row = session.fetchrow("lock_look", session.now, name, owner)
    assert row is not None
    return Took(None, None if row[0] is None else row[0] / 1_000_000, bool(row[1]))


def _take(session: Session, name: str, owner: str, host: str, pid: int, ttl: timedelta) -> Took:
    seen = _look(session, name, owner)
    if seen.remains is not None or not seen.first:
        return seen
    fence = session.take("fence")
    session.execute("lock_take", session.now, name, owner, host, pid, fence, us(ttl))
    session.execute("lock_leave", owner)
    return Took(fence, None, True)


def _renew(session: Session, held: Sequence[tuple[str, str, timedelta]]) -> set[str]:
    kept = (session.fetchval("lock_renew", session.now, name, owner, us(ttl)) for name, owner, ttl in held)
    return {owner for owner in kept if owner is not None}


def _release(session: Session, name: str, owner: str) -> bool:
    until = session.fetchval("lock_release", name, owner)
    session.execute("lock_leave", owner)
    if session.fetchval("lock_line", session.now, name) is not None:
        session.woke = True
    return until is not None and until > session.now


def _prune(session: Session) -> None:
    session.execute("lock_prune", session.now)
    session.execute("lock_prune_line", session.now - us(_LAPSED))
