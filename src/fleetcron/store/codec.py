"""How jobs and schedules are kept in a database: a few columns that SQL needs, the rest in one JSON document. The same for both stores."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from fleetcron.errors import TriggerError
from fleetcron.model import ElectorState, Job, Missed, Queue, Schedule, Tenant
from fleetcron.store.protocol import Limits
from fleetcron.triggers import Once, Trigger, trigger_from_dict


class _JobSpec(msgspec.Struct, omit_defaults=True):
    target: dict[str, Any]
    timeout: timedelta | None = None
    backoff: timedelta = timedelta(seconds=5)
    factor: float = 2
    max_backoff: timedelta = timedelta(minutes=10)
    executor: str | None = None
    strict: bool = False
    dead_letter: bool = True
    start_deadline: timedelta | None = None
    aliases: tuple[str, ...] = ()
    max_running: int | None = None
    rate: str | None = None
    burst: int | None = None
    queue: str = "default"
    priority: int = 5
    max_attempts: int = 5


class _ScheduleSpec(msgspec.Struct, omit_defaults=True):
    trigger: dict[str, Any]
    misfire_grace: timedelta = timedelta(seconds=60)
    catchup_limit: int = 1000
    jitter: timedelta = timedelta(0)
    start: datetime | None = None
    end: datetime | None = None


_encode = msgspec.json.Encoder().encode
_job_spec = msgspec.json.Decoder(_JobSpec)
_schedule_spec = msgspec.json.Decoder(_ScheduleSpec)
_missed = msgspec.json.Decoder(Missed)


def job_spec(job: Job) -> str:
    """The JSON document of a job."""
    return _encode(_JobSpec(**{f: getattr(job, f) for f in _JobSpec.__struct_fields__})).decode()


def job_from(row: Mapping[str, Any]) -> Job:
    """A job from its row: id, name, spec, known, paused."""
    spec = _job_spec.decode(row["spec"])
    declared = {f: getattr(spec, f) for f in _JobSpec.__struct_fields__}
    return Job(id=row["id"], name=row["name"], known=bool(row["known"]), paused=bool(row["paused"]), **declared)


def schedule_spec(schedule: Schedule) -> str:
    """The JSON document of a schedule."""
    return _encode(
        _ScheduleSpec(
            trigger=schedule.trigger.to_dict(),
            misfire_grace=schedule.misfire_grace,
            catchup_limit=schedule.catchup_limit,
            jitter=schedule.jitter,
            start=schedule.start,
            end=schedule.end,
        )
    ).decode()


@functools.lru_cache(maxsize=4096)
def _definition(text: str) -> tuple[_ScheduleSpec, Trigger]:
    """A schedule's stored definition. Many schedules have the same one, and a leader reads each of them once a minute: parsing them anew was
    a sixth of its CPU. A zone that is missing is asked for again each time (it may come)."""
    spec = _schedule_spec.decode(text)
    return spec, trigger_from_dict(spec.trigger)


def schedule_from(row: Mapping[str, Any]) -> Schedule:
    """A schedule from its row. One whose zone this machine does not know comes back with `error` set and a trigger that never fires."""
    trigger: Trigger
    error: str | None = None
    try:
        spec, trigger = _definition(row["spec"])
    except TriggerError as problem:
        spec = _schedule_spec.decode(row["spec"])
        trigger, error = UnknownTrigger(spec.trigger), str(problem)
    return Schedule(
        name=row["name"],
        job=row["job"],
        trigger=trigger,
        misfire=row["misfire"],
        payload=row["payload"],
        misfire_grace=spec.misfire_grace,
        catchup_limit=spec.catchup_limit,
        overlap=row["overlap"],
        jitter=spec.jitter,
        start=spec.start,
        end=spec.end,
        start_deadline=row["start_deadline"],
        tenant=row["tenant"],
        queue=row["queue"],
        priority=row["priority"],
        paused=bool(row["paused"]),
        id=row["id"],
        shard=row["shard"],
        revision=row["revision"],
        next_at=row["next_at"],
        prev_at=row["prev_at"],
        judged_until=row["judged_until"],
        owed=missed_from(row["owed"]),
        tzdata=row["tzdata"],
        error=error,
    )


_DEFINITION = (
    "job", "trigger", "misfire", "payload", "misfire_grace", "catchup_limit", "overlap", "jitter", "start", "end", "start_deadline",
    "tenant", "queue", "priority",
)  # fmt: skip


def same_definition(old: Schedule, new: Schedule) -> bool:
    """Would putting `new` change nothing about `old`? What the store keeps (next_at, revision …) does not count."""
    return old.paused == new.paused and all(getattr(old, field) == getattr(new, field) for field in _DEFINITION)


def missed_json(missed: Missed | None) -> str | None:
    """A Missed as JSON text."""
    return None if missed is None else _encode(missed).decode()


def missed_from(text: str | None) -> Missed | None:
    """The inverse of `missed_json`."""
    return None if text is None else _missed.decode(text)


def limits_from(found: Sequence[Mapping[str, Any]]) -> Limits | None:
    """The rows of limits.sql; None when there are none."""
    if not found:
        return None
    limiters = [row for row in found if row["kind"] in ("tenant", "job")]
    return Limits(
        found[0]["version"],
        {row["name"]: _tenant(row) for row in limiters if row["kind"] == "tenant"},
        {row["name"]: _tenant(row) for row in limiters if row["kind"] == "job"},
        {
            row["name"]: Queue(
                name=row["name"], max_depth=row["max_depth"], on_full=row["on_full"], paused=bool(row["paused"])
            )
            for row in found
            if row["kind"] == "queue"
        },
    )


def _tenant(row: Mapping[str, Any]) -> Tenant:
    return Tenant(
        **{name: row[name] for name in ("name", "rate", "burst", "max_running", "weight")}, paused=bool(row["paused"])
    )


class UnknownTrigger:
    """A stored trigger that cannot be read on this machine (zone unknown here, or written by a newer version): it never fires here."""

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = dict(data)

    def next(self, after: datetime) -> datetime | None:
        return None

    def latest(self, before: datetime) -> datetime | None:
        return None

    def count(self, after: datetime, until: datetime) -> int:
        return 0

    def upcoming(self, after: datetime, n: int) -> list[datetime]:
        return []

    def explain(self) -> str:
        return f"cannot be read on this machine: {self._data}"

    def to_dict(self) -> dict[str, Any]:
        return dict(self._data)


def one_shot(schedule: Schedule) -> bool:
    """Does this schedule name one instant only?"""
    return isinstance(schedule.trigger, Once)


def elector_to(state: ElectorState | None) -> str | None:
    """JSON for `scheduler.elector`."""
    return None if state is None else msgspec.json.encode(state).decode()


def elector_from(text: str | None) -> ElectorState | None:
    """The inverse of `elector_to`."""
    return None if text is None else msgspec.json.decode(text, type=ElectorState)
