"""What the virtual roles know of each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from fleetcron.fleet import Fleet
from fleetcron.testing.clock import STEP, Timeline, VirtualClock


class Scheduling(Protocol):
    """A scheduler, as the others see it."""

    frozen: bool

    def leads(self, shard: int = 0) -> bool: ...


class Working(Protocol):
    """A worker, as the others see it."""

    frozen: bool

    def sees_due(self, before: datetime) -> bool:
        """Was something due at or before this instant not started when it last looked?"""
        ...


class World:
    """One fleet on one clock."""

    def __init__(self, fleet: Fleet, clock: VirtualClock) -> None:
        self.fleet, self.clock = fleet, clock
        self.until = clock.now  # the end of the present advance
        self.timeline, self.late = Timeline(), Timeline()
        self.schedulers: list[Scheduling] = []
        self.workers: list[Working] = []
        self._overdue: list[datetime] = []
        self._watched_since: timedelta | None = None
        self.stirred = 0  # counts what user code may have changed: handlers that ran

    def ahead(self) -> timedelta:
        """How much of the present advance is left: leases of the living are granted for it in one go."""
        return max(self.until - self.clock.now, timedelta(0))

    def waiting(self, before: datetime) -> bool:
        """May ticks be waiting since this instant or before that nobody starts?"""
        return not self.workers or any(worker.sees_due(before) for worker in self.workers)

    def roles_are(self, schedulers: Sequence[Scheduling], workers: Sequence[Working]) -> None:
        """A role has come, gone, frozen or thawed."""
        self.schedulers, self.workers = list(schedulers), [worker for worker in workers if not worker.frozen]
        if all(scheduler.frozen for scheduler in self.schedulers):
            self._watched_since = None
        elif self._watched_since is None:
            self._watched_since = self.clock.elapsed

    def watched(self) -> timedelta:
        """For how long the database has been watched without a gap."""
        return timedelta(0) if self._watched_since is None else self.clock.elapsed - self._watched_since

    def someone_leads(self, shard: int) -> bool:
        return any(scheduler.leads(shard) for scheduler in self.schedulers)

    def session_ends(self, at: datetime) -> None:
        """A session that nobody renews any more runs out at this time."""
        self._overdue.append(at)
        self.timeline.add(at + STEP)

    def anyone_overdue(self) -> bool:
        return any(at < self.clock.now for at in self._overdue)

    def overdue_seen(self) -> None:
        """A rescuer has looked."""
        self._overdue = [at for at in self._overdue if at >= self.clock.now]
