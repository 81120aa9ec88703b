"""The records that users see. Frozen values; nothing here does I/O or reads a clock.

Times are aware datetimes in UTC, durations are `timedelta`, ids are int. Words are those of the glossary: job, schedule, tick, run,
attempt, lease, fence, miss.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import msgspec

from fleetcron.durations import format_duration, parse_duration
from fleetcron.errors import ConfigError, RetryAfter
from fleetcron.triggers import Trigger

Misfire = Literal["fire_all", "fire_once", "skip"]
Overlap = Literal["allow", "skip", "queue_one", "queue_all", "replace"]
ExecutorName = Literal["async", "thread", "process"]
KeyScope = Literal["finished", "started"] | timedelta
OnDuplicate = Literal["keep", "replace"]
OnFull = Literal["reject", "wait"]
BackfillOrder = Literal["asc", "desc"]
BackfillMode = Literal["missing", "failed", "all"]
BackfillState = Literal["running", "paused", "done", "cancelled", "dry run"]

MISFIRES: tuple[Misfire, ...] = ("fire_all", "fire_once", "skip")
OVERLAPS: tuple[Overlap, ...] = ("allow", "skip", "queue_one", "queue_all", "replace")
HIGHEST_PRIORITY, LOWEST_PRIORITY, DEFAULT_PRIORITY = 0, 9, 5
BACKFILL_PRIORITY = LOWEST_PRIORITY + 1
"""That of a backfill's runs, below everything that can be asked for. They do not age; they have a share instead (decide/backfill.py)."""


class State(StrEnum):
    """Where a run is. The first four are open, the rest final: a final state never changes."""

    SCHEDULED = "scheduled"  # due later
    READY = "ready"  # due, waiting for a worker
    RUNNING = "running"  # leased to a worker
    RETRYING = "retrying"  # failed at least once, waiting for its next attempt
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # attempts used up (and a dead letter, unless dead_letter=False)
    DISCARDED = "discarded"  # the handler raised Discard
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # not started by its start deadline
    MISSED = "missed"  # a tick judged away by its misfire or overlap policy

    @property
    def final(self) -> bool:
        return self not in _OPEN


_OPEN = frozenset({State.SCHEDULED, State.READY, State.RUNNING, State.RETRYING})


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the frozen records."""


class Retry:
    """When and how often a failed run is tried again.

    The n-th retry waits a random time up to `min(max_backoff, backoff × factor^(n−1))` ("full jitter", so that thousands of runs
    that failed in one instant do not come back in one instant); `jitter="none"` waits exactly that long. `retry_on` and
    `give_up_on` are exception classes; the latter wins. Raises ConfigError for anything out of range.
    """

    __slots__ = ("backoff", "factor", "give_up_on", "jitter", "max_attempts", "max_backoff", "retry_on")

    def __init__(
        self,
        max_attempts: int = 5,
        backoff: timedelta | float | str = "5s",
        factor: float = 2,
        max_backoff: timedelta | float | str = "10m",
        jitter: Literal["full", "none"] = "full",
        retry_on: tuple[type[BaseException], ...] = (Exception,),
        give_up_on: tuple[type[BaseException], ...] = (),
    ) -> None:
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= 32_000:
            raise ConfigError(f"Retry(max_attempts={max_attempts!r}): expected a whole number from 1 to 32000")
        if not 1 <= factor <= 1000:
            raise ConfigError(f"Retry(factor={factor!r}): expected a number from 1 to 1000")
        if jitter not in ("full", "none"):
            raise ConfigError(f"Retry(jitter={jitter!r}): expected 'full' or 'none'")
        self.max_attempts = max_attempts
        self.backoff = parse_duration(backoff, name="backoff", allow_zero=True)
        self.factor = factor
        self.max_backoff = parse_duration(max_backoff, name="max_backoff", allow_zero=True)
        self.jitter = jitter
        self.retry_on = tuple(retry_on) if isinstance(retry_on, (tuple, list)) else (retry_on,)
        self.give_up_on = tuple(give_up_on) if isinstance(give_up_on, (tuple, list)) else (give_up_on,)

    @staticmethod
    def after(delay: timedelta | float | str, reason: str = "") -> RetryAfter:
        """`raise Retry.after("5m")`: fail this attempt, try again no sooner than after `delay`."""
        return RetryAfter(delay, reason)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and all(getattr(self, s) == getattr(other, s) for s in self.__slots__)

    def __hash__(self) -> int:
        return hash((self.max_attempts, self.backoff, self.factor, self.max_backoff, self.jitter))

    def __repr__(self) -> str:
        return f"Retry(max_attempts={self.max_attempts}, backoff={self.backoff}, factor={self.factor}, max_backoff={self.max_backoff})"


class Job(Record, frozen=True, kw_only=True):
    """A registry entry: what to run, and how. `target` is {"type": "python"} or {"type": "shell", …}."""

    name: str
    target: dict[str, Any]
    queue: str = "default"
    priority: int = DEFAULT_PRIORITY
    timeout: timedelta | None = None
    max_attempts: int = 5
    backoff: timedelta = timedelta(seconds=5)
    factor: float = 2
    max_backoff: timedelta = timedelta(minutes=10)
    executor: ExecutorName | None = None
    strict: bool = False
    dead_letter: bool = True
    start_deadline: timedelta | None = None
    aliases: tuple[str, ...] = ()
    max_running: int | None = None  # over the whole fleet
    rate: str | None = None  # starts in a time, "100/m"
    burst: int | None = None  # None: what grows in a second
    id: int = 0
    known: bool | None = None  # does a live worker have a handler for it? None where not asked
    paused: bool | None = None  # by `pause_job`: its runs wait; None where not asked

    @property
    def type(self) -> str:
        return str(self.target.get("type", "python"))


class Missed(Record, frozen=True, kw_only=True):
    """The ticks judged away in favour of a run, the run's own not counted."""

    first: datetime
    last: datetime
    count: int


class Schedule(Record, frozen=True, kw_only=True):
    """When a job runs: a trigger with its policies. `next_at` is the next tick that is not yet written as a run."""

    name: str
    job: str
    trigger: Trigger
    misfire: Misfire | None  # None only for Once, which has one tick and always runs it
    payload: str = "{}"  # JSON text
    misfire_grace: timedelta = timedelta(seconds=60)
    catchup_limit: int = 1000
    overlap: Overlap = "allow"
    jitter: timedelta = timedelta(0)
    start: datetime | None = None
    end: datetime | None = None
    start_deadline: timedelta | None = None
    tenant: str = ""
    queue: str = "default"
    priority: int = DEFAULT_PRIORITY
    paused: bool = False
    # kept by the store
    id: int = 0
    shard: int = 0
    revision: int = 0
    next_at: datetime | None = None
    prev_at: datetime | None = None
    judged_until: datetime | None = None
    owed: Missed | None = None  # ticks judged away that no run has been told of yet
    tzdata: str = ""
    error: str | None = None  # why it cannot be evaluated (unknown zone on this node …)


class Miss(Record, frozen=True, kw_only=True):
    """A record that ticks did not run, and why: `count` ticks from `first` to `last`."""

    schedule: str
    first: datetime
    last: datetime
    count: int
    reason: str
    policy: str
    decided_at: datetime


class Attempt(Record, frozen=True, kw_only=True):
    """One try of a run. `state` is succeeded, failed, lost, cancelled, discarded, snoozed, released or running."""

    number: int
    state: str
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    error: str | None = None
    traceback: str | None = None
    fence: int | None = None


class RunRecord(Record, frozen=True, kw_only=True):
    """What the store knows of a run; `fleetcron.Run` wraps it with the methods."""

    id: int
    job: str
    schedule: str | None
    tenant: str
    queue: str
    priority: int
    nominal_at: datetime | None
    due_at: datetime
    state: State
    attempt: int
    payload: str
    result: str | None  # JSON text
    error: str | None
    key: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    generation: int = 0
    reason: str | None = None  # why it is in this state, when that needs saying


class DeadLetter(Record, frozen=True, kw_only=True):
    """A run that used up its attempts."""

    run_id: int
    job: str
    schedule: str | None
    tenant: str
    attempts: int
    error: str | None
    died_at: datetime


class QueueCounts(Record, frozen=True, kw_only=True):
    """Open runs of one queue."""

    scheduled: int = 0
    ready: int = 0
    running: int = 0
    retrying: int = 0


class Tenant(Record, frozen=True, kw_only=True):
    """The limits of a tenant. `rate` as "100/m"; `burst` None: what grows in a second; `running`: its runs that workers hold."""

    name: str
    rate: str | None = None
    burst: int | None = None
    max_running: int | None = None
    weight: int = 1
    paused: bool = False
    running: int = 0


class Queue(Record, frozen=True, kw_only=True):
    """The limits of a queue. `depth`: its runs that are due and wait; `refused`: how many it has been too full to take, a second behind."""

    name: str
    max_depth: int | None = None
    on_full: OnFull = "reject"
    paused: bool = False
    depth: int = 0
    refused: int = 0


class Backfill(Record, frozen=True, kw_only=True):
    """A past range [start, end) of a schedule that is run, or was.

    Of `total` ticks (those of the trigger when it began) `created` got a run and `existing` needed none, up to now. Of the runs `done` ended
    well (succeeded, or discarded by their handler), `failed` otherwise; the rest, `open`, waits or runs: never more than `max_running`.
    """

    schedule: str
    start: datetime
    end: datetime
    order: BackfillOrder
    mode: BackfillMode
    max_running: int
    total: int
    id: int = 0
    state: BackfillState = "running"
    created: int = 0
    existing: int = 0
    done: int = 0
    failed: int = 0
    reason: str | None = None  # why it is in this state, when that needs saying
    created_at: datetime | None = None
    finished_at: datetime | None = None
    cursor: datetime | None = None  # the last tick that was looked at

    @property
    def open(self) -> int:
        return self.created - self.done - self.failed


class Leader(Record, frozen=True, kw_only=True):
    """Who leads a shard, and how far ahead its ticks are written."""

    shard: int
    node: str | None
    host: str | None
    pid: int | None
    term: int
    since: datetime | None
    ticks_until: datetime | None


class ElectorState(Record, frozen=True, kw_only=True):
    """What a scheduler knows of its elector, by its own clock. `kind`: database, etcd, zookeeper or redis; `where`: its servers. Since
    `since` it is reached, or not; then `error` says why, and `retry_in` how long the present pause between two tries is."""

    kind: str
    where: str | None
    reached: bool
    since: datetime
    error: str | None = None
    retry_in: timedelta | None = None

    def words(self) -> str:
        """One line for people."""
        if self.where is None:
            return "the database elects"
        if self.reached:
            return f"{self.kind} at {self.where} is reached"
        again = "" if self.retry_in is None else f"; trying again every {format_duration(self.retry_in)} or so"
        return f"{self.kind} at {self.where} is not reached, so this node is a follower: {self.error}{again}"


class HeldLock(Record, frozen=True, kw_only=True):
    """A lock that is held. `owner` is host:pid; without a renewal it is over at `expires_at`."""

    name: str
    fence: int
    owner: str
    acquired_at: datetime
    expires_at: datetime
    waiters: int


class Node(Record, frozen=True, kw_only=True):
    """One process (and its worker processes). `elector`: of a node with the scheduler role."""

    node: str
    host: str
    pid: int
    worker_pids: list[int]
    roles: list[str]
    queues: list[str] | None
    slots: int
    running: int
    version: str
    tzdata: str
    started_at: datetime
    heartbeat_at: datetime
    elector: ElectorState | None = None


class TableSize(msgspec.Struct, frozen=True):
    """A table: rows that live, rows that are dead and not removed yet (both estimates), bytes with its indexes."""

    name: str
    live: int
    dead: int
    bytes: int


class Care(msgspec.Struct, frozen=True):
    """`snapshot`: who holds the oldest snapshot, and for how long; dead rows that are younger cannot be removed."""

    snapshot: tuple[str, timedelta] | None
    tables: list[TableSize]
