"""Misfires: what becomes of ticks that did not start in time.

One rule for every cause (scheduler down, workers down, backlog, a thawed process): the schedule's unstarted runs and
its unfired ticks are judged together, and the policy says how many of the most recent ones run. The others become
miss records.

Under `fire_once` and `skip` that number is one or none, and only the schedule's *latest due tick* qualifies. If that
tick is not among those judged, it has started, or another worker holds it and will judge it; either way it stands for
the older ones. So however the ticks of an outage are spread over workers, and in whatever order these judge, at most
one of them runs late.

Missed ticks are counted and stepped over, never listed: a century of seconds costs no more than a minute of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from fleetcron.decide.bounds import STEP, bounded_count, bounded_latest, bounded_next, jitter_offset, shift
from fleetcron.model import Misfire, Missed, Schedule

ON_TIME = timedelta(seconds=1)
"""A start within this time is on time whatever the grace: `misfire_grace=0` forbids late runs, not runs."""

REASONS: dict[Misfire | None, str] = {
    "fire_all": "over catchup_limit",
    "fire_once": "coalesced",
    "skip": "late",
    None: "over catchup_limit",
}
"""Why a tick did not run, by policy: the `reason` of its miss record."""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """An unstarted tick that already exists as a run. `missed`: what an earlier judgement dropped in its favour."""

    run_id: int
    nominal_at: datetime
    missed: Missed | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is judged. `pending`: sorted by `nominal_at`, all ≤ `now` and before `schedule.next_at`.

    `lease`: the lease time, for the `late_at` of ticks that fire.
    """

    now: datetime
    pending: tuple[Pending, ...]
    lease: timedelta


class MissRange(msgspec.Struct, frozen=True, kw_only=True):
    """`count` ticks from `first` to `last`, both among them, do not run. Ticks in between that did are not counted."""

    first: datetime
    last: datetime
    count: int
    reason: str


class NewTick(msgspec.Struct, frozen=True, kw_only=True):
    """An unfired tick that gets a run."""

    nominal_at: datetime
    missed: Missed | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What to do: every run in `pending` is in `keep` (with its new `missed`) or in `drop`; `fire` is oldest first.

    `next_at` and `judged_until` are the schedule's new values.
    """

    keep: dict[int, Missed | None]
    drop: list[int]
    fire: list[NewTick]
    misses: list[MissRange]
    next_at: datetime | None
    judged_until: datetime | None


class _Span(NamedTuple):
    """`size` ticks from `first` to `last`."""

    first: datetime
    last: datetime
    size: int


def judge(schedule: Schedule, facts: Facts) -> Verdict:
    """Decide over the schedule's unstarted runs and its unfired ticks (next_at ≤ tick ≤ now) at once.

    * `fire_all`: the `catchup_limit` most recent run, oldest first.
    * `fire_once`: the latest due tick runs; it is told of all the others (`missed`).
    * `skip`: the same, but only if it is no older than `misfire_grace`.
    * None (a one-shot): it runs, whenever.

    Time is counted from when a tick is due, its instant plus the schedule's jitter; a run that is not yet due is kept
    as it is.
    """
    until = shift(facts.now, -jitter_offset(schedule))
    due = [run for run in facts.pending if run.nominal_at <= until]
    unfired = _unfired(schedule, until)
    newest = unfired.last if unfired else due[-1].nominal_at if due else None

    allowed = _allowed(schedule, newest, until)
    fire = _last_ticks(schedule, unfired, allowed) if unfired else []
    kept = due[max(0, len(due) + len(fire) - allowed) :]
    dropped = due[: len(due) - len(kept)]
    left = _before(schedule, unfired, fire) if unfired else None

    missed = _together(dropped, left)
    reason = REASONS[schedule.misfire]
    misses = [MissRange(first=missed.first, last=missed.last, count=missed.count, reason=reason)] if missed else []
    # fire_all's runs stand for themselves; the single run of the others speaks for the whole outage.
    told = _chain(missed, dropped) if schedule.misfire in ("fire_once", "skip") else None
    return Verdict(
        keep={run.run_id: run.missed for run in facts.pending if run.nominal_at > until}
        | {run.run_id: _joined(told, run.missed) for run in kept},
        drop=[run.run_id for run in dropped],
        fire=[NewTick(nominal_at=tick, missed=told) for tick in fire],
        misses=misses,
        next_at=bounded_next(schedule, until) if unfired else schedule.next_at,
        judged_until=max((moment for moment in (schedule.judged_until, newest) if moment), default=None),
    )


def needs_judgement(schedule: Schedule, now: datetime, lease: timedelta) -> bool:
    """Must the unfired ticks ≤ now be judged, or can they simply be written as runs?

    True when there are two or more, or when the only one is past its `late_at`.
    """
    until = shift(now, -jitter_offset(schedule))
    if schedule.next_at is None or schedule.next_at > until:
        return False
    tick = bounded_next(schedule, schedule.next_at - STEP)
    if tick is None or tick > until:
        return False
    following = bounded_next(schedule, tick)
    if following is not None and following <= until:
        return True
    late = late_at(schedule, tick, following, lease)
    return late is not None and now > late


def late_at(schedule: Schedule, nominal: datetime, following: datetime | None, lease: timedelta) -> datetime | None:
    """The instant after which a tick that has not started is a misfire; None: never (a one-shot runs whenever it can).

    `following` is the next tick, or None at the end. Usually this is `misfire_grace` after the tick is due. Under
    `fire_once` and `skip` it comes sooner once the next tick is due as well, but no sooner than one `lease` after its
    own: the time that a crash take-over needs. Without that, an outage shorter than the grace would start several
    ticks at one instant (Quartz #239). Never below ON_TIME.
    """
    if schedule.misfire is None:
        return None
    due = shift(nominal, jitter_offset(schedule))
    late = shift(due, schedule.misfire_grace)
    if schedule.misfire != "fire_all" and following is not None:
        late = min(late, shift(due, max(following - nominal, lease)))
    return max(late, shift(due, ON_TIME))


def _unfired(schedule: Schedule, until: datetime) -> _Span | None:
    """The ticks from `next_at` to `until`: first, last and how many."""
    if schedule.next_at is None or schedule.next_at > until:
        return None
    first = bounded_next(schedule, schedule.next_at - STEP)
    last = bounded_latest(schedule, until)
    if first is None or last is None or first > last:
        return None
    return _Span(first, last, bounded_count(schedule, first - STEP, last))


def _allowed(schedule: Schedule, newest: datetime | None, until: datetime) -> int:
    """How many of the most recent ticks run. `newest` is the latest of those judged."""
    match schedule.misfire:
        case "fire_all":
            return schedule.catchup_limit
        case None:
            return max(1, schedule.catchup_limit)
    if newest is None:
        return 0
    # judged_until speaks only after the clock went back (a failover): else the latest due tick is never before it.
    if any(later is not None and later > newest for later in (bounded_latest(schedule, until), schedule.judged_until)):
        return 0
    fresh = until - newest <= max(schedule.misfire_grace, ON_TIME)
    return 1 if schedule.misfire == "fire_once" or fresh else 0


def _last_ticks(schedule: Schedule, unfired: _Span, limit: int) -> list[datetime]:
    """The last `limit` ticks of `unfired` at most, oldest first."""
    ticks: list[datetime] = []
    tick: datetime | None = unfired.last
    while tick is not None and tick >= unfired.first and len(ticks) < limit:
        ticks.append(tick)
        tick = bounded_latest(schedule, tick - STEP)
    return ticks[::-1]


def _before(schedule: Schedule, unfired: _Span, fire: Sequence[datetime]) -> _Span | None:
    """What is left of `unfired` without the ticks that fire, its last ones."""
    if not fire:
        return unfired
    last = bounded_latest(schedule, fire[0] - STEP)
    return None if last is None or last < unfired.first else _Span(unfired.first, last, unfired.size - len(fire))


def _together(dropped: Sequence[Pending], left: _Span | None) -> Missed | None:
    """The dropped runs and the unfired ticks that stay so, which come after them, as one range."""
    if not dropped and left is None:
        return None
    return Missed(
        first=dropped[0].nominal_at if dropped or left is None else left.first,
        last=dropped[-1].nominal_at if left is None else left.last,
        count=len(dropped) + (left.size if left else 0),
    )


def _chain(missed: Missed | None, dropped: Sequence[Pending]) -> Missed | None:
    """`missed` and what the dropped runs themselves stood for."""
    for run in dropped:
        missed = _joined(missed, run.missed)
    return missed


def _joined(one: Missed | None, other: Missed | None) -> Missed | None:
    if one is None or other is None:
        return one or other
    return Missed(first=min(one.first, other.first), last=max(one.last, other.last), count=one.count + other.count)
