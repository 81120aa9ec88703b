"""The Store protocol: everything the engine asks of a database. Two adapters, `postgres` and `sqlite`, one conformance suite.

Rules that hold for every method
* The database's clock decides. Nothing here takes "now" from the caller; a store made with `clock=` (tests) passes that instead.
* Every write of an owner names its proof: a worker its (worker, run, fence), a leader its (shard, term). A write whose proof is stale
  changes nothing and says so: methods return *which* rows they won, never just "ok".
* A method is one transaction. It either happened or it did not.
* Errors: StoreUnavailable when the database is down, unreachable or read-only; SchemaMismatch at `open`.

Where a run is: in exactly one of `ready` (due within the horizon), `timetable` (later), `parked` (waits for its gate) or `lease` (a
worker has it), or in none of them when its state is final. `run` itself is the history and is not written by claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from fleetcron.clock import from_us
from fleetcron.decide.backfill import Seen
from fleetcron.decide.fairness import Turns
from fleetcron.decide.misfire import Facts, Verdict
from fleetcron.model import (
    Attempt,
    Backfill,
    BackfillState,
    Care,
    DeadLetter,
    ElectorState,
    HeldLock,
    Job,
    KeyScope,
    Leader,
    Miss,
    Missed,
    Node,
    OnDuplicate,
    Queue,
    QueueCounts,
    RunRecord,
    Schedule,
    Tenant,
)

BUCKET = timedelta(minutes=1)
"""A time bucket. `ready` holds what is due in the current and the next one; the rest waits in `timetable`."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to insert. `due_at` wins over `delay`; neither = now, by the database's clock."""

    job: str
    payload: str
    queue: str
    priority: int
    tenant: str = ""
    due_at: datetime | None = None
    delay: timedelta | None = None
    key: str | None = None
    key_scope: KeyScope = "finished"
    on_duplicate: OnDuplicate = "keep"
    start_deadline: timedelta | None = None
    gate: str | None = None  # runs with one gate never overlap


class Inserted(msgspec.Struct, frozen=True):
    """The answer for one NewRun: the run's id, whether it is new (False: a dedup key matched), and when it is due (if it is new).
    `replaced`: the run that the key matched waited still, and has the payload and due time of this one now."""

    id: int
    created: bool
    due_at: datetime | None = None
    replaced: bool = False


class Lane(msgspec.Struct, frozen=True):
    """A (queue, priority, tenant) with something waiting, and the due time of its first run; for a claim, the lower bound to start at."""

    queue: str
    priority: int
    tenant: str
    first_due: datetime


class Look(msgspec.Struct, frozen=True):
    """The lanes with something waiting, the database's time, and the version of the limits."""

    now: datetime
    lanes: list[Lane]
    limits: int


class Claimed(msgspec.Struct, gc=False):
    """A leased run, as the worker gets it."""

    run_id: int
    fence: int
    attempt: int  # 1 for the first
    job: str
    payload: str
    due: float  # Unix seconds, exact to the microsecond: a datetime a run would be a tenth of what a claim costs its worker
    late: bool  # a tick that did not start in time: must be judged before it starts
    schedule: str | None
    nominal_at: datetime | None
    tenant: str
    queue: str
    priority: int
    key: str | None
    gate: str | None
    overlap: str | None
    expires_at: datetime | None
    late_at: datetime | None
    missed: Missed | None
    generation: int
    deaths: int = 0  # how many workers died holding it
    prev_at: datetime | None = None
    limited: bool = False  # counts against the limits of its tenant
    job_limit: str | None = None  # the job whose limits it has to pass before it starts; set by the worker

    @property
    def due_at(self) -> datetime:
        """`due` as an aware datetime."""
        return from_us(round(self.due * 1e6))


class Claim(msgspec.Struct):
    """`now`: the database's time while the claim ran; None: nothing was claimed. `limits`: the version of them then; None: they were kept."""

    now: datetime | None
    runs: list[Claimed]
    limits: int | None = None


class Limits(msgspec.Struct, frozen=True):
    """Everything that limits claims, as of a version: tenants, jobs (as records of the same kind), queues."""

    version: int
    tenants: dict[str, Tenant]
    jobs: dict[str, Tenant]
    queues: dict[str, Queue]


JOB_GATE = "job:"
"""How the gates begin at which the runs of limited jobs wait. Others are "schedule:<name>" and "key:<concurrency key>"."""


class LimitedClaim(msgspec.Struct, frozen=True):
    """A claim of limited tenants. `rest`: tenants that may have more waiting, but must not start it for so long; None: until a run of
    theirs has ended."""

    claim: Claim
    rest: dict[str, timedelta | None]


class Done(msgspec.Struct, gc=False):
    """A run that succeeded. `started` is Unix seconds on the database's clock; `result` is JSON text or None."""

    run_id: int
    fence: int
    started: float
    result: str | None = None
    keyed: bool = False  # holds a dedup key that ends with it
    attempt: int = 1  # the attempt number of the claim


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that ended in any other way than success.

    `state` is where the run goes: "open" (waits `delay`, in `ready` or `timetable`) or a final state. `attempt` is the number of
    attempts used up to now (a snooze or a hand-back gives its own back). `record` is the state of the attempt row to keep, None for
    none. `dead` also writes a dead letter.
    """

    run_id: int
    fence: int
    state: str
    attempt: int
    delay: timedelta = timedelta(0)
    record: str | None = None
    started_at: datetime | None = None
    error: str | None = None
    traceback: str | None = None
    result: str | None = None
    reason: str | None = None
    dead: bool = False
    handback: bool = False  # counts one hand-back by shutdown


class Admission(msgspec.Struct, frozen=True):
    """What to do with a gated run: "start", "parked" (waits its turn, no lease any more) or "missed" (overlap policy; recorded)."""

    run_id: int
    verdict: str


class Beat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat. `alive` False: the session is gone, stop everything. `cancels`: leased runs asked to stop."""

    alive: bool
    now: datetime
    cancels: list[int]


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who a worker session is. `node` is random per process start, never the host name."""

    node: str
    host: str
    pid: int
    roles: tuple[str, ...]
    queues: tuple[str, ...] | None
    slots: int
    version: str
    tzdata: str
    jobs: tuple[int, ...] | None = None  # job ids it has handlers for; None: all


class Tick(msgspec.Struct, frozen=True):
    """One tick to write as a run. `late_at`: when it counts as a misfire if not started."""

    nominal_at: datetime
    due_at: datetime
    late_at: datetime | None
    prev_at: datetime | None = None  # the tick before this one: the data interval of a run is (prev_at, nominal_at)


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks of one schedule to write, and its next tick: applied only if `next_at` and `revision` are still what the ticker read."""

    schedule_id: int
    revision: int
    old_next: datetime
    new_next: datetime | None
    ticks: list[Tick]
    prev_at: datetime | None = None  # the last tick written, kept on the schedule


class Fired(msgspec.Struct, frozen=True):
    """`led` False: the term is stale, nothing was written. `advanced`: schedule ids whose compare-and-set held."""

    led: bool
    runs: int
    advanced: list[int]


class ActiveBackfill(msgspec.Struct, frozen=True):
    """A backfill that may still create runs, or has open ones. `due`: there is something to do for it now."""

    id: int
    schedule: str
    due: bool


class Fed(msgspec.Struct, frozen=True):
    """What feeding a backfill once did. `led` False: the term is stale, nothing was written. `more`: there is room for more at once."""

    led: bool
    created: int = 0
    queue: str = ""
    more: bool = False
    ended: bool = False


class Crew(msgspec.Struct, frozen=True):
    """What a scheduler's share is computed from, at one moment.

    `nodes`: the schedulers that live and can be nominated, each with the number of shards that it was started with. `leaders`: the open
    shards, each with the node that leads it or None. `remains`: seconds until a term of another node runs out if nobody renews it.
    """

    nodes: dict[str, int]
    leaders: dict[int, str | None]
    remains: float | None


class Rescued(msgspec.Struct, frozen=True):
    """What a rescue did: dead workers, runs put back, runs sent to the dead letters."""

    workers: list[int]
    requeued: int
    dead: int


class Took(msgspec.Struct, frozen=True):
    """The answer to taking a lock: its fence, or None for not now. Then `remains` is how many seconds the holder has left (None: nobody
    holds it), and `first` whether nobody waits before us."""

    fence: int | None
    remains: float | None
    first: bool


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of `runs`; newest first. `after` is an id cursor (exclusive)."""

    job: str | None = None
    schedule: str | None = None
    state: str | None = None
    tenant: str | None = None
    queue: str | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 100
    after: int | None = None


FirstFn = Callable[[Schedule, datetime], datetime | None]
"""(schedule, now) -> its first tick: strictly after now, so that creating, editing or resuming never back-fires."""
JudgeFn = Callable[[Schedule, Facts], Verdict]
Looked = tuple[datetime, int] | None  # how far a look came: due time and run id; None: to the end


class Store(Protocol):
    """One database. All methods are coroutines except where noted; safe to call from one event loop."""

    kind: str  # "postgres" | "sqlite"
    clock: Callable[[], datetime] | None  # the tests' settable clock
    absence_is_proof: bool  # does `absent` prove death (no such process), or only suggest it (no such lock)?

    # life
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def migrate(self) -> list[str]: ...
    async def pending_migrations(self) -> list[str]: ...
    async def now(self) -> datetime: ...

    # registry
    async def put_jobs(self, jobs: Sequence[Job]) -> dict[str, int]: ...
    async def jobs(self) -> list[Job]: ...
    async def put_schedules(self, schedules: Sequence[Schedule], who: str, first: FirstFn) -> list[str]: ...
    async def schedules(
        self, *, name: str | None = None, job: str | None = None, limit: int = 1000, after: str | None = None
    ) -> list[Schedule]: ...
    async def remove_schedule(self, name: str, who: str) -> bool: ...
    async def remove_job(self, name: str, who: str) -> bool: ...
    async def pause_schedule(self, name: str, who: str) -> bool: ...
    async def resume_schedule(self, name: str, who: str, at: datetime | None, first: FirstFn) -> bool: ...

    # runs
    async def insert(self, runs: Sequence[NewRun], *, wake: Sequence[str] = (), conn: Any = None) -> list[Inserted]: ...
    async def run(self, run_id: int, *, conn: Any = None) -> RunRecord | None: ...
    async def runs(self, where: RunFilter) -> list[RunRecord]: ...
    async def attempts(self, run_id: int) -> list[Attempt]: ...
    async def cancel(self, run_id: int, who: str) -> str: ...
    async def final(self, run_ids: Sequence[int]) -> list[int]: ...
    async def misses(self, schedule: str | None, limit: int = 1000) -> list[Miss]: ...
    async def dead_letters(
        self, *, job: str | None = None, limit: int = 100, after: int | None = None
    ) -> list[DeadLetter]: ...
    async def replay(self, run_ids: Sequence[int], who: str) -> list[int]: ...
    async def purge_dead(self, run_ids: Sequence[int]) -> int: ...
    async def counts(self) -> dict[str, QueueCounts]: ...
    async def unknown_jobs(self) -> dict[str, int]: ...
    async def care(self) -> Care | None:
        """What a person who cares for the database should know; None where there is nothing to care for."""
        ...

    async def nodes(self) -> list[Node]: ...
    async def set_tenant(self, name: str, changes: Mapping[str, Any], who: str) -> Tenant: ...
    async def tenants(self) -> list[Tenant]: ...
    async def set_queue(self, name: str, changes: Mapping[str, Any], who: str) -> Queue: ...
    async def queues(self) -> list[Queue]: ...
    async def refused(self, counts: Mapping[str, int]) -> None: ...
    async def limit_jobs(self, jobs: Sequence[Job]) -> bool: ...
    async def pause_job(self, name: str, paused: bool, who: str) -> bool: ...
    async def full_queues(self) -> list[str]: ...
    async def leaders(self) -> list[Leader]: ...

    # backfills
    async def add_backfill(self, new: Backfill, who: str) -> Backfill: ...
    async def backfills(
        self, *, backfill_id: int | None = None, schedule: str | None = None, limit: int = 100, after: int | None = None
    ) -> list[Backfill]: ...
    async def steer_backfill(self, backfill_id: int, to: BackfillState, who: str) -> Backfill | None: ...
    async def seen_ticks(self, schedule: str, ticks: Sequence[datetime]) -> dict[datetime, list[Seen]]: ...

    # worker
    async def start_worker(self, info: WorkerInfo, ttl: timedelta) -> int: ...
    async def beat(self, worker: int, ttl: timedelta) -> Beat: ...
    async def worker_jobs(self, worker: int, jobs: Sequence[int] | None) -> None: ...
    async def stop_worker(self, worker: int) -> int: ...
    async def lanes(
        self, queues: Sequence[str] | None, limit: int = 10_000, known: Sequence[Lane] = (), begin: Turns | None = None
    ) -> Look: ...
    async def claim(
        self,
        worker: int,
        lanes: Sequence[Lane],
        *,
        limit: int,
        quantum: int | Sequence[int],
        ahead: timedelta,
        jobs: Sequence[int] | None,
    ) -> Claim: ...
    async def claim_limited(
        self,
        worker: int,
        lanes: Sequence[Lane],
        *,
        limit: int,
        quantum: int | Sequence[int],
        jobs: Sequence[int] | None,
    ) -> LimitedClaim: ...
    async def mark_limited(self, worker: int, tenants: Sequence[str], jobs: Sequence[str]) -> None: ...
    async def limits(self, known: int = -1) -> Limits | None: ...
    async def started(self, worker: int, run_ids: Sequence[int]) -> None: ...
    async def complete(self, worker: int, done: Sequence[Done]) -> set[int]: ...
    async def settle(self, worker: int, settled: Sequence[Settled]) -> set[int]: ...
    async def admit(self, worker: int, gated: Sequence[Claimed]) -> list[Admission]: ...
    async def unpark(self) -> list[str]: ...
    async def unpark_jobs(self) -> tuple[list[str], timedelta | None]: ...
    async def step_get(self, run_id: int, name: str) -> str | None: ...
    async def step_put(self, worker: int, run_id: int, fence: int, name: str, result: str) -> bool: ...
    async def progress(
        self, worker: int, run_id: int, fence: int, done: int, total: int | None, note: str | None
    ) -> bool: ...
    def transaction(
        self, worker: int, run: Claimed, started_at: datetime, result: Any
    ) -> AbstractAsyncContextManager[Any]: ...
    async def hold_presence(self, worker: int) -> bool: ...
    def presence_lost(self) -> bool: ...
    async def drop_presence(self) -> None: ...
    async def read_progress(self, run_id: int) -> tuple[int, int | None, str | None] | None: ...
    async def node_beat(self, info: WorkerInfo, ttl: timedelta) -> None: ...
    async def node_end(self, node: str) -> None: ...

    # leader
    async def campaign(self, shard: int, node: WorkerInfo, ttl: timedelta) -> int | None: ...
    async def renew(self, shard: int, node: str, term: int, ttl: timedelta) -> bool: ...
    async def resign(self, shard: int, node: str, term: int) -> bool: ...
    async def scheduler_beat(
        self, node: str, shards: int, ttl: timedelta, *, standing: bool, elector: ElectorState | None = None
    ) -> Crew: ...
    async def campaign_many(
        self, shards: Sequence[int], node: WorkerInfo, ttl: timedelta, limit: int
    ) -> dict[int, int]: ...
    async def renew_many(self, node: str, terms: Mapping[int, int], ttl: timedelta) -> set[int]: ...
    async def close_shards(self, count: int) -> int: ...
    async def respread(self, limit: int = 5000) -> int: ...
    async def due_schedules(
        self, shard: int, horizon: datetime, limit: int, *, without: Sequence[str] = (), flying: Sequence[int] = ()
    ) -> list[Schedule]: ...
    async def fire(
        self, shard: int, term: int, fires: Sequence[Fire], *, tzdata: str, until: datetime | None
    ) -> Fired: ...
    async def judge(
        self,
        schedule: str,
        leased: Sequence[Claimed],
        *,
        worker: int | None,
        leader: tuple[int, int] | None,
        lease: timedelta,
        decide: JudgeFn,
    ) -> Verdict | None: ...
    async def late_ticks(self, after: Looked = None, limit: int = 10_000) -> tuple[list[str], Looked]: ...
    async def broken_schedules(self, shard: int, limit: int = 100) -> list[Schedule]: ...
    async def stale_zones(self, shard: int, tzdata: str, limit: int = 1000) -> list[Schedule]: ...
    async def schedule_error(self, schedule_id: int, error: str | None) -> None: ...
    async def retick(self, name: str, leader: tuple[int, int], tzdata: str, first: FirstFn | None) -> bool: ...
    async def active_backfills(self) -> list[ActiveBackfill]: ...
    async def feed(
        self, backfill_id: int, schedule: str, leader: tuple[int, int], *, full: Sequence[str] = ()
    ) -> Fed: ...
    async def promote(self, limit: int = 5000) -> int: ...
    async def timetable_due(self) -> bool: ...
    async def rescue(self, suspects: Sequence[int] = (), *, expired: bool = True) -> Rescued: ...
    async def watch(self) -> float: ...
    async def absent(self) -> set[int]: ...
    async def prune(self, older_than: timedelta, after: int, limit: int = 5000) -> tuple[int, int]: ...
    async def prune_rest(self, older_than: timedelta) -> None: ...

    # locks
    async def lock_take(self, name: str, owner: str, host: str, pid: int, ttl: timedelta) -> Took: ...
    async def lock_wait(self, name: str, owner: str, place: timedelta) -> None: ...
    async def lock_renew(self, held: Sequence[tuple[str, str, timedelta]]) -> set[str]: ...
    async def lock_release(self, name: str, owner: str) -> bool: ...
    async def lock_prune(self) -> None: ...
    async def locks(self) -> list[HeldLock]: ...
    async def listen_locks(self, wake: Callable[[str], None]) -> None: ...

    # wake-ups
    async def listen(self, wake: Callable[[str], None]) -> None: ...
    async def notify(self, queues: Sequence[str]) -> None: ...
