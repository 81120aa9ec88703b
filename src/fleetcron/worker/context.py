"""What a handler is told about its run, and what it can ask of the engine.

`Context` is for async handlers, `BlockingContext` for those that run in a thread or a child process; the names are the
same, `step` and `progress` return at once there instead of being awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from fleetcron.errors import ConfigError, FleetcronError, LeaseLost
from fleetcron.handlers import ContextBase
from fleetcron.model import Missed
from fleetcron.payload import decode, encode_value, safe_text
from fleetcron.store.protocol import Claimed

MAX_STEP_BYTES = 1024 * 1024
MAX_STEP_NAME = 200

log = logging.getLogger("fleetcron.worker")


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one attempt, as a handler may ask for them. Also what travels to a child process."""

    run_id: int
    fence: int
    job: str
    attempt: int
    max_attempts: int
    schedule: str | None = None
    tenant: str = ""
    nominal_at: datetime | None = None
    interval: tuple[datetime, datetime] | None = None  # previous tick to this one
    deadline: datetime | None = None
    missed: Missed | None = None
    key: str | None = None
    generation: int = 0

    @classmethod
    def of(
        cls,
        claimed: Claimed,
        *,
        max_attempts: int,
        interval: tuple[datetime, datetime] | None = None,
        deadline: datetime | None = None,
    ) -> RunFacts:
        """The facts of a claimed run; what the claim does not know comes by keyword."""
        return cls(
            run_id=claimed.run_id,
            fence=claimed.fence,
            job=claimed.job,
            attempt=claimed.attempt,
            max_attempts=max_attempts,
            schedule=claimed.schedule,
            tenant=claimed.tenant,
            nominal_at=claimed.nominal_at,
            interval=interval,
            deadline=deadline,
            missed=claimed.missed,
            key=claimed.key,
            generation=claimed.generation,
        )


def idempotency_key(
    *,
    run_id: int,
    job: str,
    schedule: str | None,
    nominal_at: datetime | None,
    generation: int = 0,
) -> str:
    """The name of the work, the same for every attempt: the tick, else the run (a dedup key may come again for new work).

    A tick is `job:schedule:2026-01-31T02:00:00Z`, with `:g2` for its second reprocessing: that is work of its own.
    """
    if schedule is None or nominal_at is None:
        return f"run:{run_id}"
    tick = nominal_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return f"{job}:{schedule}:{tick}:g{generation}" if generation else f"{job}:{schedule}:{tick}"


class Services(Protocol):
    """What contexts ask of the engine. Coroutines run on the worker's event loop."""

    kind: str  # "postgres" | "sqlite"

    async def step_get(self, run_id: int, name: str) -> str | None:
        """The JSON text of a step that is done, None if it is not."""

    async def step_put(self, run: RunFacts, name: str, json: str) -> None:
        """Remember a step's result. Raises LeaseLost if the run's fence is not the current one."""

    async def progress(self, run: RunFacts, done: float, total: float | None, note: str | None) -> None:
        """Show how far the run is. May be dropped."""

    def transaction(self, context: Context) -> AbstractAsyncContextManager[Any]:
        """The handler's writes and the completion with `context.result`, together or not at all."""


class BlockingServices(Protocol):
    """`Services` as a thread sees them."""

    def step_get(self, run: RunFacts, name: str) -> str | None: ...
    def step_put(self, run: RunFacts, name: str, json: str) -> None: ...
    def progress(self, run: RunFacts, done: float, total: float | None, note: str | None) -> None: ...


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """The run's id in front of each message; `run_id`, `job` and `attempt` as fields of each record."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        assert self.extra is not None
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **self.extra}
        return f"run {self.extra['run_id']}: {msg}", kwargs


class _Told(ContextBase):
    """The names that both contexts share. Set `result` to say what the run returns when the handler returns None."""

    __slots__ = ("_log", "facts", "result")

    def __init__(self, facts: RunFacts) -> None:
        self.facts = facts
        self.result: Any = None
        self._log: RunLog | None = None

    @property
    def run_id(self) -> int:
        return self.facts.run_id

    @property
    def job(self) -> str:
        return self.facts.job

    @property
    def schedule(self) -> str | None:
        return self.facts.schedule

    @property
    def tenant(self) -> str:
        return self.facts.tenant

    @property
    def nominal_at(self) -> datetime | None:
        """The tick that this run is for; None for a run that was submitted."""
        return self.facts.nominal_at

    @property
    def interval(self) -> tuple[datetime, datetime] | None:
        """The previous tick and this one: the data interval of a recurring schedule."""
        return self.facts.interval

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.facts.attempt

    @property
    def max_attempts(self) -> int:
        return self.facts.max_attempts

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this run: hand it to whatever must not be done twice."""
        f = self.facts
        return idempotency_key(
            run_id=f.run_id,
            job=f.job,
            schedule=f.schedule,
            nominal_at=f.nominal_at,
            generation=f.generation,
        )

    @property
    def fence(self) -> int:
        """Rises with every claim in the fleet's life: other systems may refuse a lower one than they have seen."""
        return self.facts.fence

    @property
    def deadline(self) -> datetime | None:
        """When the timeout strikes; None without one."""
        return self.facts.deadline

    @property
    def missed(self) -> Missed | None:
        """The ticks judged away in favour of this run."""
        return self.facts.missed

    @property
    def log(self) -> RunLog:
        """A logger, `fleetcron.jobs.<job>`, that names the run."""
        if self._log is None:
            f = self.facts
            extra = {"run_id": f.run_id, "job": f.job, "attempt": f.attempt}
            self._log = RunLog(logging.getLogger(f"fleetcron.jobs.{f.job}"), extra)
        return self._log

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of run {self.run_id} ({self.job}), attempt {self.attempt}>"


class Context(_Told):
    """The context of an async handler."""

    __slots__ = ("_cancelled", "_latest", "_reporter", "_services", "_stopping")

    def __init__(self, facts: RunFacts, services: Services) -> None:
        self.facts = facts
        self.result = None
        self._log = None
        self._services = services
        self._cancelled: asyncio.Event | None = None
        self._stopping = False
        self._latest: tuple[float, float | None, str | None] | None = None
        self._reporter: asyncio.Task[None] | None = None

    @property
    def cancelled(self) -> asyncio.Event:
        """Set when the run is asked to stop; the task is cancelled as well."""
        if self._cancelled is None:
            self._cancelled = asyncio.Event()
            if self._stopping:
                self._cancelled.set()
        return self._cancelled

    def stop(self) -> None:
        """The engine's side of `cancelled`."""
        self._stopping = True
        if self._cancelled is not None:
            self._cancelled.set()

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> Awaitable[None]:
        """Show how far the run is; awaiting it is optional. Reports that come faster than they can be kept are merged
        into the latest, and one that cannot be kept is logged: progress never fails a run."""
        self._latest = (done, total, None if note is None else safe_text(note))
        if self._reporter is None or self._reporter.done():
            self._reporter = asyncio.get_running_loop().create_task(self._report())
        return self._reporter

    async def step(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn(*args)`, done once over all attempts: a later attempt gets the remembered result.

        `fn` may be async. Its result must have a JSON form and is handed back in that form, the first time too.
        Raises LeaseLost if the lease is gone by the time the result is to be remembered.
        """
        _check_step(name)
        known = await self._services.step_get(self.run_id, name)
        if known is None:
            value = fn(*args)
            if inspect.isawaitable(value):
                value = await value
            known = _step_text(value)
            await self._services.step_put(self.facts, name, known)
        return decode(known)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """`async with ctx.transaction() as conn:` an asyncpg connection in a transaction that also completes the run.

        Raises ConfigError on SQLite, and LeaseLost on leaving if the lease is gone; nothing is written then.
        """
        if self._services.kind != "postgres":
            raise ConfigError(
                "ctx.transaction() needs PostgreSQL: on SQLite the handler's writes are not in fleetcron's database; "
                "use ctx.step(name, fn), or make the write harmless to repeat with ctx.idempotency_key"
            )
        return self._services.transaction(self)

    async def _report(self) -> None:
        while (latest := self._latest) is not None:
            self._latest = None
            try:
                await self._services.progress(self.facts, *latest)
            except FleetcronError as error:
                log.warning("run %d: progress was not kept: %s", self.run_id, error)


class BlockingContext(_Told):
    """The context of a handler in a thread or a child process. Its methods may be called from any thread."""

    __slots__ = ("_services", "cancelled")

    def __init__(self, facts: RunFacts, services: BlockingServices) -> None:
        super().__init__(facts)
        self._services = services
        self.cancelled = threading.Event()
        """Set when the run is asked to stop. A thread cannot be stopped from outside: look at it now and then."""

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Show how far the run is. Raises LeaseLost once the run has been asked to stop; is dropped if it cannot be
        kept."""
        self._check()
        self._services.progress(self.facts, done, total, None if note is None else safe_text(note))

    def step(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn(*args)`, done once over all attempts: a later attempt gets the remembered result.

        The result must have a JSON form and is handed back in that form, the first time too. Raises LeaseLost if the
        lease is gone, or if the run has been asked to stop.
        """
        _check_step(name)
        self._check()
        known = self._services.step_get(self.facts, name)
        if known is None:
            known = _step_text(fn(*args))
            self._services.step_put(self.facts, name, known)
        return decode(known)

    def transaction(self) -> Any:
        """Only async handlers have it. Raises ConfigError."""
        raise ConfigError(
            f"ctx.transaction() needs an async handler: declare {self.job!r} with `async def` and executor='async'; "
            "here use ctx.step(name, fn), or make the write harmless to repeat with ctx.idempotency_key"
        )

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise LeaseLost(
                f"run {self.run_id} was asked to stop; what it still does may happen beside its next attempt"
            )


def _check_step(name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_STEP_NAME or safe_text(name) != name:
        raise ConfigError(f"ctx.step({name!r}): expected a name of 1 to {MAX_STEP_NAME} characters")


def _step_text(value: Any) -> str:
    if inspect.iscoroutine(value):
        value.close()
        raise ConfigError("ctx.step: an async function needs an async handler")
    return encode_value(value, max_bytes=MAX_STEP_BYTES, what="the step's result", limit="of a step")
