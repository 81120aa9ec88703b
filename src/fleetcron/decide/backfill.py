"""Running a past range of a schedule: which ticks, in which order, and which of them are to run. Pure; a range is never held as a list.

Progress is a cursor, the last tick that was looked at: twenty thousand ticks and twenty cost the same memory, and a leader that dies leaves
nothing half done. The borders of a run's data interval are ticks, as everywhere: local midnights stay local midnights over a change of the
clocks, where steps of 24 hours would leave them (case C96).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from fleetcron.decide.bounds import STEP, bounded_count, bounded_latest, bounded_next, shift
from fleetcron.errors import ConfigError
from fleetcron.model import LOWEST_PRIORITY, Backfill, BackfillMode, Schedule
from fleetcron.triggers.base import rfc3339

SHARE = 20
"""Of so many runs that a worker claims, one is a backfill's, if one waits. Otherwise backfills get what live work leaves."""


class Tick(NamedTuple):
    """A tick of the range, and the one before it: the data interval of its run is (prev_at, nominal_at)."""

    nominal_at: datetime
    prev_at: datetime | None


class Seen(NamedTuple):
    """A run of a tick, as far as a backfill cares. `state` as the table has it: "open" or final."""

    generation: int
    state: str
    started: bool


class Chosen(NamedTuple):
    """A tick to run, and the generation of its run: 0 for the first run of a tick, else one more than the last."""

    nominal_at: datetime
    prev_at: datetime | None
    generation: int


class Portion(NamedTuple):
    """What to do with some ticks: those to `run`, how many `existing` ones were passed over, and the last one looked at (None: none was)."""

    run: list[Chosen]
    existing: int
    cursor: datetime | None


def total(schedule: Schedule, start: datetime, end: datetime, now: datetime) -> tuple[datetime, int]:
    """The end of the range, cut to `now`, and how many ticks it has. Raises ConfigError when it has none, or begins in the future."""
    if start >= end:
        raise ConfigError(
            f"backfill: start={rfc3339(start)} is not before end={rfc3339(end)}; the range is [start, end)"
        )
    if start >= now:
        raise ConfigError(
            f"backfill: start={rfc3339(start)} lies in the future; a backfill runs ticks that have passed"
        )
    end = min(end, now)
    count = bounded_count(schedule, shift(start, -STEP), shift(end, -STEP))
    if not count:
        bounds = [f"{name} {rfc3339(at)}" for name, at in (("start", schedule.start), ("end", schedule.end)) if at]
        raise ConfigError(
            f"backfill: schedule {schedule.name!r} has no ticks in [{rfc3339(start)}, {rfc3339(end)})"
            + (f"; it has a {' and an '.join(bounds)} of its own" if bounds else "")
        )
    return end, count


def ticks(schedule: Schedule, backfill: Backfill, limit: int) -> list[Tick]:
    """The next ticks to look at, at most `limit`, in the backfill's order; fewer: the range ends with them."""
    return _newest_first(schedule, backfill, limit) if backfill.order == "desc" else _forward(schedule, backfill, limit)


def _forward(schedule: Schedule, backfill: Backfill, limit: int) -> list[Tick]:
    found: list[Tick] = []
    tick = bounded_next(schedule, backfill.cursor or shift(backfill.start, -STEP))
    before = None if tick is None else schedule.trigger.latest(shift(tick, -STEP))
    while tick is not None and tick < backfill.end and len(found) < limit:
        found.append(Tick(tick, before))
        before, tick = tick, bounded_next(schedule, tick)
    return found


def _newest_first(schedule: Schedule, backfill: Backfill, limit: int) -> list[Tick]:
    found: list[Tick] = []
    tick = bounded_latest(schedule, shift(backfill.cursor or backfill.end, -STEP))
    while tick is not None and tick >= backfill.start and len(found) < limit:
        before = schedule.trigger.latest(shift(tick, -STEP))
        found.append(Tick(tick, before))
        tick = before if before is None or schedule.start is None or before >= schedule.start else None
    return found


def wanted(mode: BackfillMode, runs: Sequence[Seen]) -> bool:
    """Is a tick with these runs to run?

    * `missing`: none of its runs has started, and none is going to: there is none, or it was missed, expired, or cancelled while it waited.
    * `failed`: none of its runs is open, and the newest that has started neither succeeded nor was discarded by its handler.
    * `all`: yes, whatever there is.
    """
    if mode == "all":
        return True
    if any(run.state == "open" for run in runs):
        return False
    started = [run for run in runs if run.started or run.state in ("succeeded", "discarded", "failed")]
    if mode == "missing":
        return not started
    return bool(started) and max(started).state not in ("succeeded", "discarded")


def portion(mode: BackfillMode, look: Sequence[Tick], seen: Mapping[datetime, Sequence[Seen]], room: int) -> Portion:
    """Which of these ticks to run, at most `room`, in their order. Once there is no room the rest is not looked at."""
    run: list[Chosen] = []
    existing, cursor = 0, None
    for tick in look:
        runs = seen.get(tick.nominal_at, ())
        if wanted(mode, runs):
            if len(run) >= room:
                break
            generation = max((one.generation for one in runs), default=-1) + 1
            run.append(Chosen(tick.nominal_at, tick.prev_at, generation))
        else:
            existing += 1
        cursor = tick.nominal_at
    return Portion(run, existing, cursor)


class Share:
    """How many of the next runs a worker owes to backfills: one in `SHARE`, counted while some wait; nothing is saved up."""

    def __init__(self) -> None:
        self._others = 0

    def owed(self) -> int:
        return self._others // (SHARE - 1)

    def took(self, priority: int, runs: int) -> None:
        """So many runs of a lane were claimed."""
        if priority > LOWEST_PRIORITY:
            self._others = max(self._others - runs * (SHARE - 1), 0)
        else:
            self._others += runs

    def forget(self) -> None:
        """No backfill waits."""
        self._others = 0
