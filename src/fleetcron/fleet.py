"""The fleet: what an app declares, submits and schedules. The rest of the surface (looking, pausing, replaying) is in `management`."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Literal

import msgspec

from fleetcron.clock import sleep, wall_now
from fleetcron.decide.ticks import first_tick
from fleetcron.declarations import SCHEDULE_OPTIONS, Declarations
from fleetcron.declare import Duration, check_name, check_priority, make_schedule
from fleetcron.durations import parse_duration
from fleetcron.errors import ConfigError, NotFound, StoreError, WaitTimeout
from fleetcron.handlers import Handler
from fleetcron.lock import LONGEST_TTL, SHORTEST_TTL, Lock, Locks
from fleetcron.management import Management, Submitted
from fleetcron.model import Job, KeyScope, OnDuplicate, RunRecord, Schedule, State
from fleetcron.options import parse_options
from fleetcron.payload import encode_payload
from fleetcron.run import Run, Waiters
from fleetcron.store import wakeups
from fleetcron.store.factory import make_store
from fleetcron.store.protocol import NewRun, Store
from fleetcron.store.wakeups import CANCELS, LIMITS, REGISTRY, SCHEDULES
from fleetcron.submitter import Submitter
from fleetcron.triggers import Trigger

_NOT_OPEN = "the fleet is not open: use `async with fleet:`, or await fleet.open()"
_HORIZON = timedelta(minutes=2)
PATIENCE = timedelta(seconds=10)
"""With a handler that blocks the event loop in the middle of a submit, which is no reason to end it."""


class Fleet(Declarations, Management):
    """One fleet: a database, and the jobs that this app declares.

    `Fleet("sqlite:///fleet.db")` or `Fleet("postgresql://…")`; without a URL `$FLEETCRON_URL`, else `sqlite:///fleetcron.db`. Every option is
    also `FLEETCRON_<NAME>` in the environment. Declaring needs no database; everything else needs `async with fleet:` (or `await
    fleet.open()`), which registers the declared jobs and schedules. Raises ConfigError for options that are unknown or cannot be kept.
    """

    def __init__(self, url: str | None = None, *, clock: Callable[[], datetime] | None = None, **options: Any) -> None:
        self._given = (url, options)
        self.options = parse_options(url, options)
        self._clock = clock
        Declarations.__init__(self)
        self._registry: dict[str, Job] = {}
        self._opened: Store | None = None
        self._opening: asyncio.Lock | None = None
        self._submitter: Submitter | None = None
        self._waiters: Waiters | None = None
        self._blocking: Any = None
        self._locks = Locks(self)

    def configure(self, url: str | None = None, **options: Any) -> None:
        """Change the URL or options of a fleet that is not open: what the command line says wins over what the app says."""
        given = (url or self._given[0], self._given[1] | options)
        self.options, self._given = parse_options(*given), given

    # life
    async def open(self) -> Fleet:
        """Connect, create or check the schema, register what this app declares. Idempotent.

        Raises StoreUnavailable when the database is down, unreachable or read-only, SchemaMismatch when its schema is older or newer.
        """
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._opened is None:
                store = self.make_store()
                await store.open()
                try:
                    await self._register(store)
                except BaseException:
                    await store.close()
                    raise
                self._opened, self._submitter, self._waiters = store, Submitter(store), Waiters(store.final, sleep)
        return self

    async def close(self) -> None:
        """Give back the locks that are still held, write what was handed in, and disconnect."""
        if self._opened is not None:
            await self._locks.close()
        if self._waiters is not None:
            await self._waiters.close()
        store, self._opened = self._opened, None
        if self._submitter is not None:
            await self._submitter.close()
        if store is not None:
            await store.close()
        self._opening = None

    async def __aenter__(self) -> Fleet:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def make_store(
        self,
        *,
        pool_size: int = 4,
        application: str = "fleetcron",
        custom_plans: bool = False,
        idle_timeout: timedelta | None = None,
    ) -> Store:
        """A further store on the same database, not open yet: for another event loop. `idle_timeout`: how long a transaction of a frozen
        process may hold others up; a lease, and PATIENCE at least, unless given."""
        o = self.options
        return make_store(
            o.url,
            schema=o.schema,
            clock=self._clock,
            shards=o.shards,
            auto_migrate=o.auto_migrate,
            pgbouncer=o.pgbouncer,
            direct_url=o.direct_url,
            pool_size=pool_size,
            statement_timeout=min(10.0, o.lease.total_seconds() / 3),
            application=application,
            custom_plans=custom_plans,
            idle_timeout=(idle_timeout or max(o.lease, PATIENCE)).total_seconds(),
        )

    def use_clock(self, clock: Callable[[], datetime] | None) -> None:
        """Go by this clock instead of the database's, or by the database's again (None): for tests. Raises StoreError while open."""
        if self._opened is not None:
            raise StoreError("the fleet is open: its clock can only be set before")
        self._clock = clock

    @property
    def store(self) -> Store:
        """The open store. Raises StoreError before `open`."""
        if self._opened is None:
            raise StoreError(_NOT_OPEN)
        return self._opened

    def _out(self) -> Submitter:
        if self._submitter is None:
            raise StoreError(_NOT_OPEN)
        return self._submitter

    async def _register(self, store: Store) -> None:
        declared = [d.job for d in self._declared.values()]
        await store.put_jobs(declared)
        if declared:
            await store.notify([REGISTRY, LIMITS] if await store.limit_jobs(declared) else [REGISTRY])
        self._registry = {job.name: job for job in await store.jobs()}
        schedules = [
            await self._as_paused(store, d.schedule) for d in self._declared.values() if d.schedule is not None
        ]
        if schedules:
            answers = await store.put_schedules(schedules, self._who(), first_tick)
            if any(answer != "unchanged" for answer in answers):
                await store.notify([SCHEDULES, CANCELS])

    async def _as_paused(self, store: Store, declared: Schedule) -> Schedule:
        """A declaration does not say whether its schedule is paused: an operator does, and an app that starts again leaves that alone."""
        known = await store.schedules(name=declared.name)
        return msgspec.structs.replace(declared, paused=True) if known and known[0].paused else declared

    # submitting
    async def submit(
        self,
        job: Callable[..., Any] | str,
        payload: Any = None,
        *,
        at: datetime | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        key_scope: Literal["finished", "started"] | Duration = "finished",
        on_duplicate: OnDuplicate = "keep",
        tenant: str = "",
        queue: str | None = None,
        priority: int | None = None,
        start_deadline: Duration | None = None,
        concurrency_key: str | None = None,
        conn: Any = None,
    ) -> Run:
        """Submit one run, due now, `at` an aware datetime, or after a `delay`.

        `key`: a second submit with it returns the existing run (`run.created` is False) until that one has finished, has started
        (`key_scope="started"`), or for a time from its due time (a duration); with `on_duplicate="replace"` a run that still waits takes
        the newer payload and due time. `conn`: a connection of your own to fleetcron's database (asyncpg, psycopg, psycopg2, SQLAlchemy;
        sqlite3); the run is then part of its transaction, and exists when you commit.
        Raises PayloadError, ConfigError, TypeError (naive datetime, wrong `conn`), NotFound (unknown job), QueueFull, StoreUnavailable.
        """
        target, handler = await self._resolve(job)
        new = self._new_run(
            target,
            self._bind(handler, payload),
            at=at,
            delay=delay,
            key=key,
            key_scope=key_scope,
            on_duplicate=on_duplicate,
            tenant=tenant,
            queue=queue,
            priority=priority,
            start_deadline=start_deadline,
            concurrency_key=concurrency_key,
        )
        if conn is not None:
            inserted = (await self._out().until_room(lambda: self.store.insert([new], conn=conn), 1, wait=False))[0]
        else:
            inserted = await self._out().submit(new, soon=self._soon(new))
        if not inserted.created:
            record, attempts = await self._run_record(inserted.id, conn)
            return Run(self, record, attempts, created=False, replaced=inserted.replaced)
        return Run(self, self._fresh(inserted.id, new, inserted.due_at), created=True)

    async def submit_many(
        self,
        job: Callable[..., Any] | str,
        payloads: Sequence[Any],
        *,
        keys: Sequence[str | None] | None = None,
        due_at: Sequence[datetime | None] | None = None,
        **options: Any,
    ) -> Submitted:
        """Submit many runs of one job, all or none; `options` as for `submit`. Returns `Submitted(ids, created, replaced)`, in order."""
        target, handler = await self._resolve(job)
        for name, values in (("keys", keys), ("due_at", due_at)):
            if values is not None and len(values) != len(payloads):
                raise ConfigError(f"submit_many: {len(payloads)} payloads but {len(values)} {name}")
        if keys is not None and options.get("key") is not None:
            raise ConfigError("submit_many: give key= or keys=, not both")
        conn = options.pop("conn", None)
        model = self._new_run(target, "{}", **options)
        runs = []
        for i, payload in enumerate(payloads):
            text = self._bind(handler, payload)
            if keys is None and due_at is None:
                runs.append(_copy(model, text))
            else:
                at = due_at[i] if due_at is not None else None
                own = {
                    **options,
                    **({"at": at} if at is not None else {}),
                    **({"key": keys[i]} if keys is not None else {}),
                }
                runs.append(self._new_run(target, text, **own))
        if not runs:
            return Submitted([], [], [])
        if conn is not None:
            found = await self._out().until_room(lambda: self.store.insert(runs, conn=conn), len(runs), wait=False)
        else:
            soon = due_at is not None or any(self._soon(r) for r in (runs[0], runs[-1]))
            words = [model.queue if due_at is not None else wakeups.of_run(model)] if soon else []
            now, later = self._out().waker.ration(words)
            found = await self._out().until_room(lambda: self.store.insert(runs, wake=now), len(runs))
            self._out().waker.send(later)
        return Submitted([f.id for f in found], [f.created for f in found], [f.replaced for f in found])

    def _new_run(
        self,
        job: Job,
        payload: str,
        *,
        at: datetime | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        key_scope: Literal["finished", "started"] | Duration = "finished",
        on_duplicate: OnDuplicate = "keep",
        tenant: str = "",
        queue: str | None = None,
        priority: int | None = None,
        start_deadline: Duration | None = None,
        concurrency_key: str | None = None,
    ) -> NewRun:
        if at is not None and delay is not None:
            raise ConfigError("at= and delay= were given; a run is due at one time")
        if at is not None:
            if not isinstance(at, datetime):
                raise TypeError(f"at: expected an aware datetime, got {at!r}")
            if at.utcoffset() is None:
                raise TypeError(f"at: {at!r} is naive (no time zone); say which instant is meant, e.g. tzinfo=UTC")
            at = at.astimezone(UTC)
        if on_duplicate not in ("keep", "replace"):
            raise ConfigError(f"on_duplicate={on_duplicate!r}: expected 'keep' or 'replace'")
        scope: KeyScope = key_scope if key_scope in ("finished", "started") else _duration(key_scope, "key_scope")  # type: ignore[assignment]
        deadline = start_deadline if start_deadline is not None else job.start_deadline
        return NewRun(
            job=job.name,
            payload=payload,
            queue=job.queue if queue is None else check_name(queue, "queue"),
            priority=job.priority if priority is None else check_priority(priority),
            tenant=tenant if tenant == "" else check_name(tenant, "tenant"),
            due_at=at,
            delay=None if delay is None else _duration(delay, "delay", allow_zero=True),
            key=None if key is None else check_name(key, "key"),
            key_scope=scope,
            on_duplicate=on_duplicate,
            start_deadline=None if deadline is None else _duration(deadline, "start_deadline"),
            gate=None if concurrency_key is None else f"key:{check_name(concurrency_key, 'concurrency_key')}",
        )

    def _soon(self, run: NewRun) -> bool:
        """May it be due within the horizon? Guessed by our own clock: it only decides about a wake-up, which polling makes up for."""
        if run.due_at is not None:
            return run.due_at - wall_now() < 3 * _HORIZON
        return run.delay is None or run.delay < _HORIZON

    def _fresh(self, run_id: int, new: NewRun, due_at: datetime | None) -> RunRecord:
        now = self._clock() if self._clock is not None else wall_now()
        due = due_at or now
        return RunRecord(
            id=run_id,
            job=new.job,
            schedule=None,
            tenant=new.tenant,
            queue=new.queue,
            priority=new.priority,
            nominal_at=None,
            due_at=due,
            state=State.SCHEDULED if due > now else State.READY,
            attempt=0,
            payload=new.payload,
            result=None,
            error=None,
            key=new.key,
            created_at=now,
            started_at=None,
            finished_at=None,
            worker=None,
        )

    def _bind(self, handler: Handler | None, payload: Any) -> str:
        limit = self.options.max_payload
        return encode_payload(payload, max_bytes=limit) if handler is None else handler.bind(payload, limit)

    async def _resolve(self, job: Callable[..., Any] | str) -> tuple[Job, Handler | None]:
        """A declared job with its handler, or one that the registry knows."""
        name = self._name_of(job)
        declared = self._declared.get(name)
        if declared is not None:
            return declared.job, declared.handler
        if name not in self._registry:
            self._registry = {j.name: j for j in await self.store.jobs()}
        if name not in self._registry:
            for candidate in self._registry.values():
                if name in candidate.aliases:
                    return candidate, None
            raise NotFound(
                f"no job is named {name!r}: it is registered when an app that declares it starts, or by `fleetcron job add`"
            )
        return self._registry[name], None

    # scheduling
    async def schedule(
        self, name: str, job: Callable[..., Any] | str, trigger: Trigger, payload: Any = None, **options: Any
    ) -> Schedule:
        """Create a schedule, or edit the one of this name; `options` as for `job` (misfire, misfire_grace, catchup_limit, overlap, jitter,
        start, end, start_deadline, tenant, queue, priority, paused). An edit withdraws ticks that have not started and never back-fires.
        Raises ConfigError, TriggerError (it can never fire), PayloadError, NotFound."""
        await self.schedule_many([(name, job, trigger, payload, options)])
        return (await self.store.schedules(name=name))[0]

    async def schedule_many(self, schedules: Sequence[tuple[Any, ...]]) -> list[str]:
        """Register schedules in bulk: (name, job, trigger[, payload[, options]]) each. Returns "created", "edited" or "unchanged", in order."""
        made = []
        for name, job, trigger, *rest in schedules:
            target, handler = await self._resolve(job)
            options = rest[1] if len(rest) > 1 else {}
            if unknown := sorted(set(options) - SCHEDULE_OPTIONS - {"tenant", "queue", "priority", "paused"}):
                raise ConfigError(f"schedule {name!r}: unknown option {unknown[0]!r}")
            made.append(make_schedule(name, target, trigger, self._bind(handler, rest[0] if rest else None), **options))
        answers = await self.store.put_schedules(made, self._who(), first_tick)
        if any(answer != "unchanged" for answer in answers):
            await self.store.notify([SCHEDULES, CANCELS])
        return answers

    # locking
    def lock(self, name: str, ttl: Duration = "30s", wait: Duration | None = None) -> Lock:
        """A lock that one process of the fleet holds at a time: `async with fleet.lock("reindex") as lock: …`, or `acquire` and `release`.

        It is held for `ttl` (100 ms to a year) and renewed in the background at a third of that; a process that dies holds it for one ttl at
        most. `wait`: None waits, in order of arrival; 0 tries once; a duration waits that long, then LockTimeout. `lock.fence` is a number that
        rises with every acquisition, for resources to refuse whoever is too late; `lock.lost` is an event; `await lock.renew()` asks. Raises
        ConfigError at once.
        """
        span = _duration(ttl, "ttl")
        if not SHORTEST_TTL <= span <= LONGEST_TTL:
            raise ConfigError(f"lock {name!r}: ttl={ttl!r}: expected 100ms to 365d")
        patience = None if wait is None else _duration(wait, "wait", allow_zero=True)
        return Lock(self._locks, check_name(name, "lock"), span, patience)

    # what Management and Run need
    def _who(self) -> str:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a container's user without an account
            user = str(os.getuid())
        return f"{user}@{socket.gethostname()}:{os.getpid()}"

    async def _wait_final(self, run_id: int, timeout: float | None) -> None:
        waiters = self._waiters
        if waiters is None:
            raise StoreError(_NOT_OPEN)
        try:
            async with asyncio.timeout(timeout):
                await waiters.wait(run_id)
        except TimeoutError:
            raise WaitTimeout(f"run {run_id} has not ended within {timeout:g}s") from None

    @property
    def blocking(self) -> Any:
        """The same surface for synchronous code; opens on first use, closes at exit or by `.close()`."""
        if self._blocking is None:
            from fleetcron.blocking import BlockingFleet  # lazy: it needs Fleet

            self._blocking = BlockingFleet(self)
        return self._blocking

    def twin(self) -> Fleet:
        """A closed fleet with the same options and declarations, for another event loop."""
        other = Fleet.__new__(Fleet)
        other.__dict__.update(self.__dict__)
        other._opened = other._opening = other._submitter = other._waiters = other._blocking = None
        other._registry, other._locks = {}, Locks(other)
        return other

    def operator(self) -> Fleet:
        """A closed fleet on the same database that declares nothing: to look and to steer, without registering this app's jobs."""
        other = self.twin()
        other._declared, other._by_function = {}, {}
        return other


def _duration(value: Any, name: str, *, allow_zero: bool = False) -> timedelta:
    try:
        return parse_duration(value, name=name, allow_zero=allow_zero)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _copy(model: NewRun, payload: str) -> NewRun:
    return NewRun(
        job=model.job,
        payload=payload,
        queue=model.queue,
        priority=model.priority,
        tenant=model.tenant,
        due_at=model.due_at,
        delay=model.delay,
        key=model.key,
        key_scope=model.key_scope,
        on_duplicate=model.on_duplicate,
        start_deadline=model.start_deadline,
        gate=model.gate,
    )
