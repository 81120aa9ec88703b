"""Which ticks to write as runs, and where a schedule begins."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from fleetcron.decide.bounds import STEP, bounded_latest, bounded_next, jitter_offset, shift
from fleetcron.decide.misfire import late_at, needs_judgement
from fleetcron.model import Schedule
from fleetcron.triggers import Once

__all__ = ["PlannedTick", "TickPlan", "bounded_latest", "bounded_next", "first_tick", "jitter_offset", "plan"]

MAX_TICKS = 1000
"""Ticks of one schedule in one plan: two minutes of seconds fit eight times over, and one statement stays small."""


class PlannedTick(NamedTuple):
    """A tick to write: its instant, when it is due (the instant plus jitter), and after which time it is a misfire."""

    nominal_at: datetime
    due_at: datetime
    late_at: datetime | None


class TickPlan(NamedTuple):
    """The ticks to write, oldest first, and the schedule's new `next_at`: the first tick that is not among them."""

    ticks: list[PlannedTick]
    new_next: datetime | None


def first_tick(schedule: Schedule, now: datetime) -> datetime | None:
    """Where a schedule begins when it is created, edited or resumed: strictly after `now`, so that it never back-fires.

    A one-shot whose time has passed is the exception: its own instant, so it runs at once. Whether it has run already
    is for the caller to know.
    """
    if isinstance(schedule.trigger, Once):
        past = bounded_latest(schedule, now)
        if past is not None:
            return past
    return bounded_next(schedule, now)


def plan(schedule: Schedule, now: datetime, horizon: datetime, lease: timedelta, limit: int = MAX_TICKS) -> TickPlan:
    """The ticks in [next_at, horizon) to write as runs, at most `limit`: if there are more, `new_next` < horizon.

    Ticks that must be judged are not written behind the policy's back: while `needs_judgement`, the plan is empty and
    `new_next` is the old one.
    """
    if schedule.next_at is None or needs_judgement(schedule, now, lease):
        return TickPlan([], schedule.next_at)
    offset = jitter_offset(schedule)
    ticks: list[PlannedTick] = []
    tick = bounded_next(schedule, schedule.next_at - STEP)
    while tick is not None and tick < horizon and len(ticks) < limit:
        following = bounded_next(schedule, tick)
        ticks.append(PlannedTick(tick, shift(tick, offset), late_at(schedule, tick, following, lease)))
        tick = following
    return TickPlan(ticks, tick)
