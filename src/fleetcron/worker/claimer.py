"""Deciding when to claim, from which lanes, and how much.

* **Wake-ups**: a notification, the next due time, room in the slots, or the poll, which is the truth: everything else only makes it quicker
  (see lanes.py).
* **How much**: what is due now, up to the free slots plus a buffer of what this worker has lately finished in 20 ms (at most 512: no
  hoarding by slow jobs, full batches for fast ones); and what is due within the look-ahead, up to the same: it waits here on a timer and
  starts within milliseconds of its instant.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from fleetcron.clock import sleep
from fleetcron.decide.backfill import Share
from fleetcron.decide.fairness import Deal, Group, Tier, advance, deal, order_lanes, tiers
from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.model import LOWEST_PRIORITY
from fleetcron.store import wakeups
from fleetcron.store.protocol import Claim, Claimed, Lane, Store
from fleetcron.store.wakeups import Place
from fleetcron.worker.allowance import Allowance
from fleetcron.worker.dbclock import DbClock
from fleetcron.worker.intake import Intake
from fleetcron.worker.lanes import POLL, Lanes, place_of
from fleetcron.worker.lease import Lease
from fleetcron.worker.runner import Runner

log = logging.getLogger("fleetcron.worker")

AHEAD = 2.0
"""Seconds that a run may be claimed before it is due. Long enough for any claim to be done in time, well below any lease."""
_MAX_BUFFER = 512
_BUFFER_SECONDS = 0.02
_LANES_A_CLAIM = 128
"""Of 10,000 tenants with five runs each, 22,000 runs/s were drained with 256, 26,000 with 128, 24,000 with 64."""
_LIMITED_A_CLAIM = 48
"""Lanes of limited tenants: each costs four times a run, so a few at a time and more from each."""
_OVERDUE_CHECK = 5.0
_COMMIT_LAG = timedelta(seconds=0.2)
"""Runs become visible at commit, a little after the due time that they carry: bounds stay this far behind."""
_LINE_PAUSE = 0.01
"""Seconds between looks at the lines of limited jobs, at least: more tokens of a quick rate are let in together."""


class Claimer:
    """`session()` gives the current lease; `jobs()` the ids this worker can run (None: all)."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        intake: Intake,
        clock: DbClock,
        *,
        session: Callable[[], Lease | None],
        jobs: Callable[[], Sequence[int] | None],
        queues: Sequence[str] | None,
        ageing: timedelta,
    ) -> None:
        self._store, self._runner, self._intake, self._clock = store, runner, intake, clock
        self._session, self._jobs, self._queues, self._ageing = session, jobs, queues, ageing
        self.allowance = Allowance(store)
        self._lanes = Lanes(store, clock, queues)
        self._cursor: dict[Group, str] = {}
        self._begun: dict[Group, tuple[str, int]] = {}
        self._share: Share | None = None  # of backfills, while some wait
        self._checked = self._measured = float("-inf")
        self._lines_at = float("-inf")  # when to look whether more runs of limited jobs may start
        self._finished, self._rate = 0, 0.0
        self.stopping = False
        self.last_round = float("-inf")  # monotonic time of the last look or claim that the database answered

    def wake(self, wake_up: str = "", *, sweep: bool = False) -> None:
        """Something may have become due (in these lanes of this queue). `sweep`: below the lower bounds, perhaps. On the worker's loop."""
        queue = wakeups.queue_of(wake_up)
        if queue and self._queues is not None and queue not in self._queues:
            return
        if places := wakeups.places_of(wake_up):
            self._lanes.tell(places)
        else:
            # "": rescued or handed back, perhaps, with a due time below our bounds.
            self._lanes.doubt(sweep=sweep or not queue)
        if sweep:
            self.allowance.forget_rests()
        self._runner.room.set()

    def limits_changed(self) -> None:
        """A limit or a pause was set, changed or lifted."""
        self.allowance.changed()
        self._lines_at = float("-inf")
        self._lanes.doubt_all()
        self.wake(sweep=True)

    def ended(self, tenants: Iterable[str]) -> None:
        """Runs of these limited tenants have ended, and it is written down."""
        if self.allowance.ended(tenants):
            self._runner.room.set()

    def stop(self) -> None:
        """Claim no more."""
        self.stopping = True
        self._runner.room.set()

    async def run(self) -> None:
        """Claim until stopped. Survives the database being away."""
        pause = 0.1
        while not self.stopping:
            self._runner.room.clear()
            try:
                progress = await self.round()
                pause = 0.1
            except StoreUnavailable as error:
                log.warning("claiming waits for the database: %s", error)
                await sleep(pause * (0.5 + random.random()))
                pause = min(pause * 2, 2.0)
                continue
            if not progress and not self.stopping:
                await self._wait()

    async def round(self, ahead: float = AHEAD) -> bool:
        """Look if it is time to, claim what there is room for; returns whether another round may find more at once."""
        lease = self._session()
        if lease is None or not lease.valid():
            return False
        if self._lanes.look_in(self._clock.steady()) <= 0:
            await self._look(ahead)
        await self._keep_limits(lease)
        if self.allowance.limited_jobs and self._clock.steady() >= self._lines_at:
            await self.open_lines()
        due, soon = self._sorted(ahead)
        room = self._room()
        if room > 0 and due:
            return await self._claim(lease, due, room, 0.0)
        later = room - self._runner.pending()  # no more than there are slots for: an idle worker could start it in time
        if later > 0 and soon:
            # A lane that gave nothing is looked at again: if the same run is still its first, a timer waits for that.
            return await self._claim(lease, soon, later, ahead) or self._lanes.look_in(self._clock.steady()) <= 0
        return False

    def _sorted(self, ahead: float) -> tuple[list[Lane], list[Lane]]:
        """The lanes to claim from now, and those to claim from ahead of the time."""
        moment, steady = self._clock.moment(), self._clock.steady()
        may = list(self._lanes)
        if self.allowance.holds_back():
            may = [lane for lane in may if self.allowance.may(lane, steady)]
        due = [lane for lane in may if lane.first_due <= moment]
        if ahead <= 0 or len(due) == len(may):
            return due, []
        until = moment + timedelta(seconds=ahead)
        return due, [
            lane
            for lane in may
            if moment < lane.first_due <= until and not self.allowance.limited(lane) and self._lanes.gives_ahead(lane)
        ]

    async def _keep_limits(self, lease: Lease) -> None:
        """Learn which limits hold now, if it is time to; what may not start under them goes back."""
        if await self.allowance.refresh(lease.worker, self._clock.steady()):
            self._lanes.doubt(sweep=True)  # what was held back may lie below the lower bounds
            self._intake.give_back(self._runner.unstarted_but(self.allowance.keeps))

    async def open_lines(self) -> None:
        """Let those who may start now leave the lines of limited jobs. (The leader does so each second.)"""
        if not self.allowance.limited_jobs:
            return
        queues, rest = await self._store.unpark_jobs()
        wait = POLL if rest is None else min(max(rest.total_seconds(), _LINE_PAUSE), POLL)
        self._lines_at = self._clock.steady() + wait
        for queue in queues:
            self.wake(queue, sweep=True)

    async def _look(self, ahead: float) -> None:
        steady = self._clock.steady()
        if steady - self._checked >= _OVERDUE_CHECK:
            self._checked = steady
            if await self._store.timetable_due():
                log.warning("a bucket is overdue that no leader has promoted: promoting it")
                await self._store.promote()
        await self._lanes.look(self._cursor, lambda: any(self._sorted(ahead)))
        self.allowance.heard(self._lanes.limits, self._clock.steady())
        if not any(lane.priority > LOWEST_PRIORITY for lane in self._lanes):
            self._share = None
        elif self._share is None:
            self._share = Share()
        self.last_round = self._clock.steady()

    async def _claim(self, lease: Lease, lanes: list[Lane], limit: int, ahead: float) -> bool:
        left = limit
        ordered = order_lanes(lanes, ageing=self._ageing, cursor=self._cursor)
        if self._share is not None and (owed := min(self._share.owed(), left)) > 0:
            left -= await self._claim_share(lease, ordered, owed, ahead)
        for tier in tiers(self._first(ordered)):
            left -= await self._claim_tier(lease, tier, left, ahead)
            if left <= 0:
                break
        if ahead == 0.0 and left > 0:
            self._lanes.ran_dry(lanes, gave=left < limit)
        return left < limit

    def _first(self, ordered: list[Lane]) -> list[Lane]:
        """The lanes to claim from together."""
        limited = 0
        for i, lane in enumerate(ordered[:_LANES_A_CLAIM] if self.allowance.limits_anybody() else ()):
            limited += self.allowance.limited(lane)
            if limited > _LIMITED_A_CLAIM:
                return ordered[:i]
        return ordered[:_LANES_A_CLAIM]

    async def _claim_share(self, lease: Lease, ordered: list[Lane], owed: int, ahead: float) -> int:
        """What live work owes to backfills, before more of it is claimed; what they have no use for is forgotten."""
        assert self._share is not None
        backfills = [lane for lane in ordered if lane.priority > LOWEST_PRIORITY][:_LANES_A_CLAIM]
        taken = await self._claim_tier(lease, Tier(backfills, whole=False), owed, ahead)
        if taken < owed:
            self._share.forget()
        return taken

    async def _claim_tier(self, lease: Lease, tier: Tier[Lane], limit: int, ahead: float) -> int:
        """A turn for everybody, then what some have left for those who have more; returns how many runs were taken."""
        lanes, left, first = tier.lanes, limit, True
        while lanes and left > 0:
            dealt = deal(lanes, left, self.allowance.weight, self._begun)
            asked = dict(zip(map(place_of, lanes), dealt.quanta, strict=True))
            kinds = dict.fromkeys(map(self.allowance.limited, lanes))  # the one whose turn it is first
            more = [lane for lane in lanes if len(kinds) > 1 and not asked[place_of(lane)]]
            served: dict[Place, int] = {}
            for limited in kinds:
                some = [lane for lane in lanes if self.allowance.limited(lane) is limited and lane not in more]
                if left > 0 and some:
                    # Where all lanes are of one kind, those without a turn stand in for those that turn out to be empty.
                    quanta = [max(asked[place_of(lane)], 1) for lane in some]
                    taken, rich = await self._claim_from(lease, some, quanta, left, ahead, limited=limited)
                    served |= taken
                    more += rich
                    left -= sum(taken.values())
            if first:
                self._turns_are_over(lanes, served, asked == {place: served.get(place, 0) for place in asked}, dealt)
                first = False
            if not served and len(more) == len(lanes):
                break
            lanes = more if tier.whole else []
        return limit - left

    def _turns_are_over(self, lanes: list[Lane], served: dict[Place, int], as_dealt: bool, dealt: Deal) -> None:
        if as_dealt:
            self._cursor |= dealt.cursor
        else:
            self._cursor = advance(self._cursor, [lane for lane in lanes if served.get(place_of(lane))])
        for lane in lanes:
            self._begun.pop((lane.queue, lane.priority), None)
        if as_dealt:
            self._begun |= dealt.begun

    async def _claim_from(
        self, lease: Lease, lanes: list[Lane], quanta: list[int], limit: int, ahead: float, *, limited: bool
    ) -> tuple[dict[Place, int], list[Lane]]:
        """One claim: how many runs each lane gave, and the lanes that have given their quantum and may have more."""
        if not limited:
            claim = await self._store.claim(
                lease.worker, lanes, limit=limit, quantum=quanta, ahead=timedelta(seconds=ahead), jobs=self._jobs()
            )
        else:
            claim = await self._claim_limited(lease, lanes, limit, quanta)
        self.last_round = self._clock.steady()
        if claim.now is not None:
            self._clock.observe(claim.now)
        taken = _by_place(claim.runs, lanes)
        if self._share is not None:
            for (_, priority, _), (count, _) in taken.items():
                self._share.took(priority, count)
        # What heads a lane may be left out by a claim ahead: it has a dedup key.
        heads = {(r.queue, r.priority, r.tenant): r.due_at for r in reversed(claim.runs)} if ahead > 0 else {}
        more: list[Lane] = []
        committed = self._clock.moment() - _COMMIT_LAG
        for lane, quantum in zip(lanes, quanta, strict=True):
            count, last = taken.get(place_of(lane), (0, lane.first_due))
            self._lanes.bound(lane, min(last, committed), gave=count > 0)
            rests = limited and not self.allowance.may(lane, self.last_round)
            if rests or count >= quantum or len(claim.runs) >= limit:
                rest = self._lanes.left(lane, last)
                if not rests:
                    more.append(rest)
            else:
                self._lanes.emptied(lane)
                if ahead > 0 and heads.get(place_of(lane)) != lane.first_due:
                    self._lanes.withheld(lane)
        await self._take(claim, lease)
        return {place: count for place, (count, _) in taken.items()}, more

    async def _take(self, claim: Claim, lease: Lease) -> None:
        """Take in what may start. A limit was set before these runs were submitted, perhaps, and the message is still on its way."""
        if self.allowance.heard(claim.limits, self._clock.steady()):
            self._intake.take(claim.runs, lease)
            return
        try:
            await self._keep_limits(lease)
        except StoreError:
            self._intake.refuse(claim.runs, lease)
            raise
        self._intake.take([run for run in claim.runs if self.allowance.takes(run)], lease)
        self._intake.refuse([run for run in claim.runs if not self.allowance.takes(run)], lease)

    async def _claim_limited(self, lease: Lease, lanes: list[Lane], limit: int, quanta: list[int]) -> Claim:
        found = await self._store.claim_limited(lease.worker, lanes, limit=limit, quantum=quanta, jobs=self._jobs())
        self.allowance.served(run.tenant for run in found.claim.runs)
        self.allowance.rest(found.rest, self._clock.steady())
        return found.claim

    def _room(self) -> int:
        """How many runs that are due now may be taken."""
        moment = self._clock.steady()
        if moment - self._measured >= 0.05:
            finished = self._runner.finished
            rate = (finished - self._finished) / (moment - self._measured) if self._measured > 0 else 0.0
            self._rate = rate if rate > self._rate else 0.7 * self._rate + 0.3 * rate
            self._measured, self._finished = moment, finished
        buffer = min(int(self._rate * _BUFFER_SECONDS), _MAX_BUFFER)
        self._runner.low_water = buffer // 2
        waiting = self._runner.waiting()
        if waiting > buffer // 2 and self._runner.busy() + waiting >= self._runner.slots:
            return 0
        return self._runner.slots - self._runner.busy() - waiting + buffer

    async def _wait(self) -> None:
        """Until a wake-up, room, the next due time or the poll, whichever is first."""
        lease = self._session()
        timeout = 0.1
        if lease is not None and lease.valid():
            now, steady = self._clock.now(), self._clock.steady()
            timeout = self._lanes.look_in(steady)
            if (first := self._lanes.first_after(now, AHEAD)) is not None and self._room() > self._runner.pending():
                timeout = min(timeout, first - now)
            if self.allowance.limited_jobs:
                timeout = min(timeout, self._lines_at - steady)
            rested = self.allowance.next_rest(self._lanes)
            if rested is not None and self._room() > 0:
                timeout = min(timeout, rested - steady)
        try:
            async with asyncio.timeout(max(timeout, 0.0)):
                await self._runner.room.wait()
        except TimeoutError:
            pass


def _by_place(runs: Sequence[Claimed], lanes: Sequence[Lane]) -> dict[Place, tuple[int, datetime]]:
    """How many runs each lane gave, and the due time of the last."""
    if not runs:
        return {}
    if len(lanes) == 1:  # nothing to count one by one
        return {place_of(lanes[0]): (len(runs), runs[-1].due_at)}
    counts = Counter([(run.queue, run.priority, run.tenant) for run in runs])
    last = {(run.queue, run.priority, run.tenant): run for run in runs}  # they come in the order of their due times
    return {place: (count, last[place].due_at) for place, count in counts.items()}
