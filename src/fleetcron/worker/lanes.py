"""Which lanes have something waiting, as far as a worker knows.

* Notifications name the lanes in which something has become due: that is all it takes to claim from them.
* A **look** at the database is the truth. There is one each second, and one when anything else may have changed. Slow looks have pauses
  between them: they may take a tenth of the time.
* A look gives at most 2,000 lanes. Where there are more, it begins with the tenants whose turn it is, and goes on behind them when these have
  nothing (more) to give.
* Between looks, the due time below which nothing is left in a lane is remembered (the moving **lower bound**), so that the dead rows of past
  claims are not walked again. A **sweep** is a look without bounds: it finds what has arrived below them. There is one each second, or less
  often where dead rows make it slow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from fleetcron.decide.fairness import Group, Turns
from fleetcron.errors import StoreError
from fleetcron.store.protocol import Lane, Store
from fleetcron.store.wakeups import Place
from fleetcron.worker.dbclock import DbClock

POLL = 1.0
"""Seconds between looks, at most, when nothing asks for one: late arrivals below a lower bound wait at most this long."""
_AT_A_LOOK = 2000
_FURTHER = 8
"""How often a look goes on behind lanes that have nothing for us, at most."""
_QUICK, _PAUSE = 0.005, 9.0
"""Seconds of a look after which no pause is needed; how many times as long as a slower one the pause is, up to POLL."""
_TOLD_WITHIN = timedelta(seconds=1)
"""What a notification tells of has become due within this time; if it is older, the next sweep finds it."""
_SWEEP_SHARE = 50.0
"""A sweep may take a fiftieth of the time: 2 % of a worker, however many dead rows an old snapshot keeps."""
_SWEEP_AT_LEAST = 10.0
_MOST_BOUNDS = 2048


class Lanes:
    """`now` everywhere: the steady clock of the worker."""

    def __init__(self, store: Store, clock: DbClock, queues: Sequence[str] | None) -> None:
        self._store, self._clock, self._queues = store, clock, queues
        self._known: dict[Place, Lane] = {}
        self._bounds: dict[Place, Lane] = {}
        self._told: set[Place] = set()  # since the last look, which knew of nothing there
        self._later: dict[
            Place, Lane
        ] = {}  # what the last look knew of lanes in which something else was told to be due before
        self._not_ahead: dict[Place, datetime] = {}  # lanes whose first run, due then, was not given ahead of its time
        self._ends: dict[Group, str] = {}  # the last tenants that the last look gave, if it did not give all
        self.limits: int | None = None  # their version, as of the last look
        self._gave = False  # has anything been claimed since the last look?
        self._next = self._swept = self._not_before = float("-inf")
        self._look_took = self._sweep_took = self._sweep_before = 0.0

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._known.values())

    # what others tell
    def tell(self, places: Iterable[Place]) -> None:
        """Runs that are due have come into these lanes."""
        now = self._clock.moment()
        for place in places:
            known = self._known.get(place)
            if known is None:
                self._told.add(place)
            elif known.first_due > now:
                self._later[place] = known
            if known is None or known.first_due > now:
                floor = self._bounds[place].first_due if place in self._bounds else now - _TOLD_WITHIN
                self._known[place] = Lane(*place, min(floor, now))

    def doubt(self, *, sweep: bool = False) -> None:
        """Something may have changed: look. `sweep`: also below the lower bounds."""
        self._next = float("-inf")
        if sweep:
            self._swept = float("-inf")

    def doubt_all(self) -> None:
        """Look at everything, and without a pause."""
        self.doubt(sweep=True)
        self._not_before = float("-inf")

    # looks
    def look_in(self, now: float) -> float:
        """Seconds until the next look."""
        if self._ends and self._gave:
            return self._next - now  # those behind the lanes that have given what they had wait for it
        return max(self._next, self._not_before) - now

    async def look(self, turn: Turns, serves: Callable[[], bool]) -> None:
        """Look which lanes there are. `turn`: which tenant of a queue and priority was served last; `serves()`: is there a lane among those
        known that may be claimed from now?"""
        began = self._clock.steady()
        sweep = (
            began - self._swept >= max(POLL, min(_SWEEP_SHARE * self._sweep_took, _SWEEP_AT_LEAST))
            or len(self._bounds) > _MOST_BOUNDS
        )
        if sweep:
            self._bounds.clear()
            self._swept = began
        # Where the last look could not give all: from the turn on, or, if these lanes have nothing for us, from behind them.
        begin = dict(turn if serves() else self._ends) if self._ends else {}
        self._next = began + POLL * (0.8 + 0.2 * random.random())  # jitter: workers should not look in step
        self._known, self._gave = {}, False
        self._told.clear()
        self._later.clear()
        try:  # what is doubted or told meanwhile stays so: this look may not have seen it
            for _ in range(1 + _FURTHER):
                await self._look(begin)
                if not self._ends or serves():
                    break
                begin = self._ends
        except StoreError:
            self.doubt()
            raise
        if self._not_ahead:
            firsts = {place: lane.first_due for place, lane in self._known.items()}
            self._not_ahead = {place: due for place, due in self._not_ahead.items() if firsts.get(place) == due}
        # The quicker of two: one slow answer (connecting, a busy moment) must not put off the next look or sweep.
        took = (now := self._clock.steady()) - began
        usual, self._look_took = min(took, self._look_took), took
        self._not_before = now + (min(_PAUSE * usual, POLL) if usual > _QUICK else 0.0)
        if sweep:
            self._sweep_took, self._sweep_before = min(took, self._sweep_before), took

    async def _look(self, begin: Turns) -> None:
        look = await self._store.lanes(self._queues, limit=_AT_A_LOOK, known=list(self._bounds.values()), begin=begin)
        lanes, self.limits = look.lanes, look.limits
        self._clock.observe(look.now)
        for lane in lanes:
            told = self._known.get(place := place_of(lane))
            if told is None or told.first_due > lane.first_due:
                self._known[place] = lane
            elif told.first_due < lane.first_due:
                self._later[place] = lane
        cut = len(lanes) >= _AT_A_LOOK
        self._ends = {**begin, **{(lane.queue, lane.priority): lane.tenant for lane in lanes}} if cut else {}

    # what claims tell
    def left(self, lane: Lane, due: datetime) -> Lane:
        """A claim has taken everything of this lane that is due before, and there may be more; returns what is known of it now."""
        left = self._known[place_of(lane)] = Lane(lane.queue, lane.priority, lane.tenant, due)
        return left

    def emptied(self, lane: Lane) -> None:
        """A claim has found nothing more for us here: not until its next due time that we know, the next look, or a notification."""
        later = self._later.pop(place := place_of(lane), None)
        if later is not None and later.first_due > lane.first_due:
            self._known[place] = later
        else:
            self._known.pop(place, None)

    def bound(self, lane: Lane, due: datetime, *, gave: bool) -> None:
        """Nothing is left in this lane that is due before."""
        self._bounds[place_of(lane)] = Lane(lane.queue, lane.priority, lane.tenant, due)
        self._gave = self._gave or gave

    def withheld(self, lane: Lane) -> None:
        """The lane's first run was not given ahead of its time: a timer has to wait for that."""
        self._not_ahead[place_of(lane)] = lane.first_due
        self.doubt()

    def gives_ahead(self, lane: Lane) -> bool:
        """May the lane's first run be claimed ahead of its time?"""
        return self._not_ahead.get(place_of(lane)) != lane.first_due

    def first_after(self, now: float, ahead: float) -> float | None:
        """When to claim the first run that is not due yet: `ahead` seconds before it is, or, if it is not given then, when it is. Both in Unix
        seconds."""
        return min(
            (
                due if self._not_ahead.get(place) == lane.first_due else due - ahead
                for place, lane in self._known.items()
                if (due := lane.first_due.timestamp()) > now
            ),
            default=None,
        )

    def ran_dry(self, lanes: Iterable[Lane], *, gave: bool) -> None:
        """These have given what they may now. If a look found them, others may be behind them; and what comes next has to set the timer."""
        places = [place_of(lane) for lane in lanes]
        dry = not any(place in self._known for place in places) and not self._told.issuperset(places)
        if self._ends if not gave else dry:
            self.doubt()


def place_of(lane: Lane) -> Place:
    """Where it is."""
    return lane.queue, lane.priority, lane.tenant
