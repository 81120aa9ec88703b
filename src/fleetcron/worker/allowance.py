"""What a worker may claim, as far as it knows: limits and pauses, read each second and when they are said to have changed.

The lanes of a limited tenant are claimed by a statement of their own, which keeps the limits; all others never notice that limits exist.
What the limits refuse for now rests: until the next token, or until a run of that tenant has ended, which is looked for at growing
intervals when it may end elsewhere. Of what was claimed before a tenant, queue or job was limited or paused, what has not started goes
back, and the rest counts against the limits. A claim tells which version of the limits held while it ran: what it took under one that is
not known here yet is looked at again before it starts, so that a limit holds for everything that is submitted after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from fleetcron.model import Tenant
from fleetcron.store.protocol import Claimed, Lane, Limits, Store

EVERY = 1.0
"""Seconds between looks: a change takes effect within them."""
_FIRST_REST, _LONGEST_REST = 0.05, 0.8
"""Seconds until a tenant that has as many running as it may is asked about again, doubled from time to time."""

_NONE = Limits(-1, {}, {}, {})


class Allowance:
    """`now` everywhere: the steady clock of the worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._limits = _NONE
        self._limited: frozenset[str] = frozenset()
        self._shut: frozenset[str] = frozenset()  # paused tenants
        self._closed: frozenset[str] = frozenset()  # paused queues
        self.limited_jobs: frozenset[str] = frozenset()
        self.paused_jobs: frozenset[str] = frozenset()
        self._rests: dict[str, float] = {}
        self._waits: dict[str, float] = {}  # tenants whose runs must end first: how long they rest
        self._looked = float("-inf")

    def changed(self) -> None:
        """Limits are said to have changed: look again."""
        self._looked = float("-inf")

    def heard(self, version: int | None, now: float) -> bool:
        """This version of the limits holds now; returns whether it is known. If not, a `refresh` is due; else, not for a second."""
        if version is not None:
            self._looked = now if version == self._limits.version else float("-inf")
        return version is None or version == self._limits.version

    async def refresh(self, worker: int, now: float) -> bool:
        """Look, if it is time to; returns whether anything has changed. Then what the worker holds counts, too."""
        if now - self._looked < EVERY:
            return False
        self._looked = now
        limits = await self._store.limits(self._limits.version)
        if limits is None:
            return False
        limited = frozenset(name for name, tenant in limits.tenants.items() if _limits(tenant))
        jobs = frozenset(name for name, job in limits.jobs.items() if _limits(job))
        if limited - self._limited or jobs - self.limited_jobs:
            await self._store.mark_limited(worker, sorted(limited - self._limited), sorted(jobs - self.limited_jobs))
        self._limits, self._limited, self.limited_jobs = limits, limited, jobs
        self.paused_jobs = frozenset(name for name, job in limits.jobs.items() if job.paused)
        self._shut = frozenset(name for name, tenant in limits.tenants.items() if tenant.paused)
        self._closed = frozenset(name for name, queue in limits.queues.items() if queue.paused)
        self._rests.clear()
        self._waits.clear()
        return True

    def limits_anybody(self) -> bool:
        """Is any tenant limited?"""
        return bool(self._limited)

    def limited(self, lane: Lane) -> bool:
        """Is this a lane of a limited tenant?"""
        return lane.tenant in self._limited

    def weight(self, tenant: str) -> int:
        """How many turns a tenant has where others have one."""
        found = self._limits.tenants.get(tenant)
        return 1 if found is None else found.weight

    def holds_back(self) -> bool:
        """Is there any lane that may not be claimed from now?"""
        return bool(self._rests or self._closed or self._shut)

    def may(self, lane: Lane, now: float) -> bool:
        """May a claim be made from this lane now?"""
        if lane.queue in self._closed or lane.tenant in self._shut:
            return False
        return not self._rests or self._rests.get(lane.tenant, now) <= now

    def takes(self, run: Claimed) -> bool:
        """May a run that was claimed without limits be taken in?"""
        return not (
            run.queue in self._closed
            or run.tenant in self._shut
            or run.job in self.paused_jobs
            or (run.tenant in self._limited and not run.limited)
        )

    def keeps(self, run: Claimed) -> bool:
        """May a run that was taken in, and has not started, be kept?"""
        return self.takes(run) and (run.job not in self.limited_jobs or run.job_limit is not None)

    def rest(self, rests: Mapping[str, timedelta | None], now: float) -> None:
        """What a limited claim has said of its tenants."""
        for tenant, span in rests.items():
            if span is None:
                wait = self._waits.get(tenant, _FIRST_REST / 2) * 2
                self._waits[tenant] = wait = min(wait, _LONGEST_REST)
            else:
                wait = span.total_seconds()
            self._rests[tenant] = now + wait

    def served(self, tenants: Iterable[str]) -> None:
        """These were given something: what they wait for next may come as soon."""
        for tenant in tenants:
            self._waits.pop(tenant, None)

    def ended(self, tenants: Iterable[str]) -> bool:
        """Runs of these tenants have ended here; does one that may start now rest?"""
        waiting = [tenant for tenant in tenants if tenant in self._waits]
        for tenant in waiting:
            self._waits.pop(tenant)
            self._rests.pop(tenant, None)
        return bool(waiting)

    def forget_rests(self) -> None:
        """Ask about everything again."""
        self._rests.clear()

    def next_rest(self, lanes: Iterable[Lane]) -> float | None:
        """When the first of these lanes that rest is to be asked about again."""
        if not self._rests:
            return None
        return min((self._rests[lane.tenant] for lane in lanes if lane.tenant in self._rests), default=None)


def _limits(tenant: Tenant) -> bool:
    return tenant.rate is not None or tenant.max_running is not None
