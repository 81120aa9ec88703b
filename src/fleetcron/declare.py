"""Turning what an app says about a job or a schedule into records, checked: what, where, and what to do instead."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fleetcron.decide.limits import NO_LIMIT, parse_rate
from fleetcron.durations import parse_duration
from fleetcron.errors import ConfigError, TriggerError
from fleetcron.handlers import Handler
from fleetcron.model import (
    DEFAULT_PRIORITY,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MISFIRES,
    OVERLAPS,
    ExecutorName,
    Job,
    Misfire,
    Overlap,
    Retry,
    Schedule,
)
from fleetcron.triggers import Cron, Every, Once, Trigger, tzdata_version

Duration = timedelta | float | str
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MISFIRE_HELP = (
    "misfire= is required for a recurring schedule: what should happen to ticks that could not start in time?\n"
    '  misfire="fire_all"   run each of them, oldest first (up to catchup_limit)\n'
    '  misfire="fire_once"  run once for all of them\n'
    '  misfire="skip"       run none that is older than misfire_grace'
)


class Declared:
    """A job of the app: the registry entry, its function and its retry policy (whose exception classes only the app knows)."""

    __slots__ = ("handler", "job", "retry", "schedule")

    def __init__(self, job: Job, handler: Handler, retry: Retry, schedule: Schedule | None) -> None:
        self.job, self.handler, self.retry, self.schedule = job, handler, retry, schedule


def check_name(name: object, what: str) -> str:
    """A name that every store, shell and URL can carry. Raises ConfigError."""
    if not isinstance(name, str) or not name.strip() or len(name) > 200 or _CONTROL.search(name):
        raise ConfigError(f"{what} {name!r}: expected text of 1 to 200 characters without control characters")
    return name


def check_priority(priority: object) -> int:
    """0 first … 9 last. Raises ConfigError."""
    if (
        isinstance(priority, bool)
        or not isinstance(priority, int)
        or not HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY
    ):
        raise ConfigError(f"priority={priority!r}: expected a whole number from 0 (first) to 9 (last)")
    return priority


def check_whole(value: Any, what: str, *, most: int = NO_LIMIT) -> int | None:
    """A whole number above zero, or None. Raises ConfigError."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
        raise ConfigError(f"{what}={value!r}: expected a whole number from 1 to {most}, or None")
    return value


def check_rate(value: Any, what: str) -> str | None:
    """A rate, or None. Raises ConfigError."""
    if value is not None:
        try:
            parse_rate(value, what)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return value  # type: ignore[no-any-return]


def default_name(fn: Callable[..., Any]) -> str:
    """`module.function` as the app is imported: also for a module that was started as a script."""
    module = fn.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec is not None else Path(getattr(main, "__file__", None) or "__main__").stem
    return f"{module}.{fn.__qualname__}"


def make_trigger(name: str, cron: str | None, every: Duration | None, at: datetime | None, tz: str) -> Trigger | None:
    """The one trigger that was asked for, or None; `H` fields are hashed from `name`. Raises ConfigError, TriggerError."""
    given = [option for option, value in (("cron", cron), ("every", every), ("at", at)) if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} were given; a job has one trigger of its own (more: fleet.schedule)")
    if cron is not None:
        return Cron(cron, tz, name=name)
    if every is not None:
        return Every(every)
    return Once(at) if at is not None else None


def make_job(
    fn: Callable[..., Any] | None,
    name: str | None,
    *,
    target: dict[str, Any] | None = None,
    queue: str,
    priority: int,
    timeout: Duration | None,
    retry: Retry,
    executor: ExecutorName | None,
    strict: bool,
    dead_letter: bool,
    start_deadline: Duration | None,
    aliases: Sequence[str],
    max_running: int | None = None,
    rate: str | None = None,
    burst: int | None = None,
) -> tuple[Job, Handler | None]:
    """A job and, for a Python function, its handler. Raises ConfigError for what could not work."""
    if name is None:
        assert fn is not None
        name = default_name(fn)
    check_name(name, "job name")
    handler = None if fn is None else Handler(fn, name)
    seconds = None if timeout is None else _duration(timeout, "timeout")
    if executor not in (None, "async", "thread", "process"):
        raise ConfigError(f"job {name!r}: executor={executor!r}: expected 'async', 'thread' or 'process'")
    if handler is not None:
        if executor == "async" and not handler.is_async:
            raise ConfigError(
                f"job {name!r}: executor='async' needs an `async def`; a plain function runs in a 'thread' or a 'process'"
            )
        if executor == "thread" and handler.is_async:
            raise ConfigError(f"job {name!r}: an `async def` runs on the event loop or in a 'process', not in a thread")
        if seconds is not None and (executor == "thread" or (executor is None and not handler.is_async)):
            raise ConfigError(
                f"job {name!r}: timeout= on a thread cannot be kept, because Python cannot stop a thread; "
                "use executor='process' (its process group is killed) or an `async def`"
            )
        if strict and (executor == "thread" or (executor is None and not handler.is_async)):
            raise ConfigError(
                f"job {name!r}: strict=True cannot be kept for a thread, which cannot be stopped; use executor='process'"
            )
    return Job(
        name=name,
        target=target or {"type": "python"},
        queue=check_name(queue, f"job {name!r}: queue"),
        priority=check_priority(priority),
        timeout=seconds,
        max_attempts=retry.max_attempts,
        backoff=retry.backoff,
        factor=retry.factor,
        max_backoff=retry.max_backoff,
        executor=executor,
        strict=strict,
        dead_letter=dead_letter,
        start_deadline=None if start_deadline is None else _duration(start_deadline, "start_deadline"),
        aliases=tuple(check_name(a, f"job {name!r}: alias") for a in aliases),
        max_running=check_whole(max_running, f"job {name!r}: max_running"),
        rate=check_rate(rate, f"job {name!r}: rate"),
        burst=check_whole(burst, f"job {name!r}: burst"),
    ), handler


def make_schedule(
    name: str,
    job: Job,
    trigger: Trigger,
    payload: str,
    *,
    misfire: Misfire | None = None,
    misfire_grace: Duration = "60s",
    catchup_limit: int = 1000,
    overlap: Overlap = "allow",
    jitter: Duration | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    start_deadline: Duration | None = None,
    tenant: str = "",
    queue: str | None = None,
    priority: int | None = None,
    paused: bool = False,
) -> Schedule:
    """A schedule. Raises ConfigError (misfire missing …), TriggerError (it can never fire), TypeError (naive datetimes)."""
    check_name(name, "schedule name")
    if not isinstance(trigger, Trigger):
        raise ConfigError(
            f"schedule {name!r}: expected a trigger such as Cron('0 9 * * *'), Every('5m') or Once(at), not {trigger!r}"
        )
    if isinstance(trigger, Once):
        misfire = None
    elif misfire is None:
        raise ConfigError(f"schedule {name!r}: {_MISFIRE_HELP}")
    elif misfire not in MISFIRES:
        raise ConfigError(f"schedule {name!r}: misfire={misfire!r}\n{_MISFIRE_HELP}")
    if overlap not in OVERLAPS:
        raise ConfigError(f"schedule {name!r}: overlap={overlap!r}: expected one of {', '.join(OVERLAPS)}")
    if isinstance(catchup_limit, bool) or not isinstance(catchup_limit, int) or not 0 <= catchup_limit <= 100_000:
        raise ConfigError(
            f"schedule {name!r}: catchup_limit={catchup_limit!r}: expected a whole number from 0 to 100000"
        )
    start, end = _aware(start, "start"), _aware(end, "end")
    if start is not None and end is not None and end <= start:
        raise ConfigError(f"schedule {name!r}: end ({end.isoformat()}) is not after start ({start.isoformat()})")
    first = trigger.next(
        start - timedelta(microseconds=1) if start is not None else datetime.min.replace(tzinfo=UTC) + timedelta(days=2)
    )
    if first is None or (end is not None and first > end):
        raise TriggerError(
            f"schedule {name!r}: {trigger.explain()}: this can never fire{' between start and end' if start or end else ''}"
        )
    return Schedule(
        name=name,
        job=job.name,
        trigger=trigger,
        misfire=misfire,
        payload=payload,
        misfire_grace=_duration(misfire_grace, "misfire_grace", allow_zero=True),
        catchup_limit=catchup_limit,
        overlap=overlap,
        jitter=timedelta(0) if jitter is None else _duration(jitter, "jitter", allow_zero=True),
        start=start,
        end=end,
        start_deadline=job.start_deadline if start_deadline is None else _duration(start_deadline, "start_deadline"),
        tenant=tenant if tenant == "" else check_name(tenant, "tenant"),
        queue=job.queue if queue is None else check_name(queue, "queue"),
        priority=job.priority if priority is None else check_priority(priority),
        paused=paused,
        tzdata=tzdata_version(),
    )


def _duration(value: Duration, name: str, *, allow_zero: bool = False) -> timedelta:
    try:
        return parse_duration(value, name=name, allow_zero=allow_zero)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _aware(moment: datetime | None, name: str) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise TypeError(f"{name}: expected an aware datetime, got {moment!r}")
    if moment.utcoffset() is None:
        raise TypeError(f"{name}: {moment!r} is naive (no time zone); say which instant is meant, e.g. tzinfo=UTC")
    return moment.astimezone(UTC)


__all__ = [
    "DEFAULT_PRIORITY",
    "Declared",
    "check_name",
    "check_priority",
    "check_rate",
    "check_whole",
    "default_name",
    "make_job",
    "make_schedule",
    "make_trigger",
]
