"""Limits, as operators set them: the part of `Fleet` for tenants, queues and pauses."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fleetcron.declare import check_name, check_rate, check_whole
from fleetcron.errors import ConfigError, NotFound
from fleetcron.model import OnFull, Queue, Tenant
from fleetcron.store.protocol import Store
from fleetcron.store.wakeups import LIMITS

KEEP: Any = object()
"""An option that was not given: it stays as it is."""


class Limiting:
    """Needs an open store. A change takes effect within a second."""

    @property
    @abstractmethod
    def store(self) -> Store: ...
    @abstractmethod
    def _who(self) -> str: ...

    async def set_tenant(
        self,
        name: str,
        *,
        rate: str | None = KEEP,
        burst: int | None = KEEP,
        max_running: int | None = KEEP,
        weight: int = KEEP,
        paused: bool = KEEP,
    ) -> Tenant:
        """Limit a tenant, over the whole fleet: `rate` starts in a time ("100/m", "50/s", "5/10s"), of which `burst` may come at once
        (default: what grows in a second, at least 1), and `max_running` runs at one time. `weight`: how many turns it has where others of
        its priority have one. `paused`: none of its runs is started. What is not given stays as it is; None lifts a limit. Raises
        ConfigError."""
        given = {"rate": rate, "burst": burst, "max_running": max_running, "weight": weight, "paused": paused}
        changes = {what: value for what, value in given.items() if value is not KEEP}
        check_rate(changes.get("rate"), "rate")
        for what in ("burst", "max_running"):
            check_whole(changes.get(what), what)
        if check_whole(changes.get("weight"), "weight", most=1000) is None:
            changes |= {"weight": 1} if "weight" in changes else {}
        _flag(changes.get("paused", False), "paused")
        await self.store.set_tenant(name if name == "" else check_name(name, "tenant"), changes, self._who())
        await self.store.notify([LIMITS])
        return next(tenant for tenant in await self.tenants() if tenant.name == name)

    async def tenants(self) -> list[Tenant]:
        """The tenants that have ever been limited, with how many of their runs workers hold."""
        return await self.store.tenants()

    async def set_queue(
        self, name: str, *, max_depth: int | None = KEEP, on_full: OnFull = KEEP, paused: bool = KEEP
    ) -> Queue:
        """Limit a queue: at most `max_depth` runs that are due wait in it. A submit that would be one more raises QueueFull, or with
        `on_full="wait"` waits for room; ticks wait, and then follow their misfire policy. `paused`: none of its runs is started. What is
        not given stays as it is; None lifts the limit. Raises ConfigError."""
        given = {"max_depth": max_depth, "on_full": on_full, "paused": paused}
        changes = {what: value for what, value in given.items() if value is not KEEP}
        check_whole(changes.get("max_depth"), "max_depth")
        if changes.get("on_full", "reject") not in ("reject", "wait"):
            raise ConfigError(f"on_full={on_full!r}: expected 'reject' or 'wait'")
        _flag(changes.get("paused", False), "paused")
        await self.store.set_queue(check_name(name, "queue"), changes, self._who())
        await self.store.notify([LIMITS])
        return next(queue for queue in await self.queues() if queue.name == name)

    async def queues(self) -> list[Queue]:
        """The queues that have limits, or runs that are due and wait."""
        return await self.store.queues()

    async def pause_job(self, name: str) -> None:
        """Start no more runs of a job, wherever they come from; they wait. Raises NotFound."""
        await self._pause_job(name, True, f"no job is named {name!r}")

    async def resume_job(self, name: str) -> None:
        """Start the runs of a paused job again. Raises NotFound."""
        await self._pause_job(name, False, f"no job is named {name!r}")

    async def _pause_job(self, name: str, paused: bool, missing: str) -> None:
        if not await self.store.pause_job(name, paused, self._who()):
            raise NotFound(missing)
        await self.store.notify([LIMITS])


def _flag(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r}: expected True or False")
