"""Deciding when to claim, from which lanes, and how much.

* **Wake-ups**: a notification, the next due time, room in the slots, or the poll, which is the truth: everything else only makes it quicker.
* **Lanes** are looked up when something may have changed and at least once a second; between looks a worker remembers for each lane the
  due time below which nothing is left for it (the moving lower bound), so that the dead rows of past claims are not walked again. A sweep
  without bounds finds what arrived below them: every second, or less often where dead rows make it slow.
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
from fleetcron.store.protocol import Claim, Claimed, Lane, Store
from fleetcron.worker.allowance import Allowance
from fleetcron.worker.dbclock import DbClock
from fleetcron.worker.intake import Intake
from fleetcron.worker.lease import Lease
from fleetcron.worker.runner import Runner

log = logging.getLogger("fleetcron.worker")

AHEAD = 2.0
"""Seconds that a run may be claimed before it is due. Long enough for any claim to be done in time, well below any lease."""
POLL = 1.0
"""Seconds between looks when nothing wakes us: late arrivals below a lower bound wait at most this long."""
_MAX_BUFFER = 512
_BUFFER_SECONDS = 0.02
_LANES_A_CLAIM = 256
_LIMITED_A_CLAIM = 48
"""Lanes of limited tenants: each costs four times a run, so a few at a time and more from each."""
_OVERDUE_CHECK = 5.0
_SWEEP_SHARE = 50.0
"""A sweep (a look without lower bounds) may take a fiftieth of the time: 2 % of a worker, however many dead rows an old snapshot keeps."""
_SWEEP_AT_LEAST = 10.0
_COMMIT_LAG = timedelta(seconds=0.2)
"""Runs become visible at commit, a little after the due time that they carry: bounds stay this far behind."""
_MAX_BOUNDS = 256
_MAX_RECENT = 16
_LINE_PAUSE = 0.01
"""Seconds between looks at the lines of limited jobs, at least: more tokens of a quick rate are let in together."""


Place = tuple[str, int, str]
"""Queue, priority, tenant."""


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
        self._lanes: dict[Place, Lane] = {}
        self._bounds: dict[Place, Lane] = {}  # per lane, what lies below is not looked at until the next sweep
        self._swept, self._sweep_took = float("-inf"), 0.0
        self._sweep_before = 0.0
        self._cursor: dict[Group, str] = {}
        self._begun: dict[Group, tuple[str, int]] = {}
        self._share: Share | None = None  # of backfills, while some wait
        self._told: set[str] = set()  # queues that wake-ups named since the last look
        self._recent: dict[Place, datetime] = {}  # the lower bounds of lanes that gave runs lately, the latest last
        self._may_skip = False  # a look since the last claim without one
        self._not_ahead: dict[Place, datetime] = {}  # lanes whose first run, due then, was not given ahead of its time
        self._looked = self._checked = self._measured = float("-inf")
        self._lines_at = float("-inf")  # when to look whether more runs of limited jobs may start
        self._finished, self._rate = 0, 0.0
        self.stopping = False
        self.last_round = float("-inf")  # monotonic time of the last look or claim that the database answered

    def wake(self, queue: str = "", *, sweep: bool = False) -> None:
        """Something may have become due (in this queue). `sweep`: it may lie below the lower bounds. Call on the worker's loop."""
        if not queue:
            self._swept = float("-inf")  # rescued or handed back, perhaps, with a due time below our bounds
        if not queue or self._queues is None or queue in self._queues:
            self._looked = float("-inf")
            if queue:
                self._told.add(queue)
            if sweep:
                self._swept = float("-inf")
                self.allowance.forget_rests()
            self._runner.room.set()

    def limits_changed(self) -> None:
        """A limit or a pause was set, changed or lifted."""
        self.allowance.changed()
        self._lines_at = float("-inf")
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
        await self._keep_limits(lease)
        if self.allowance.limited_jobs and self._clock.steady() >= self._lines_at:
            await self.open_lines()
        if self._clock.steady() - self._looked >= POLL:
            if await self._claim_at_once(lease):
                return True
            await self._look()
        moment, steady = self._clock.moment(), self._clock.steady()
        room = self._room()
        may = list(self._lanes.values())
        if self.allowance.holds_back():
            may = [lane for lane in may if self.allowance.may(lane, steady)]
        due = [lane for lane in may if lane.first_due <= moment]
        if room > 0 and due:
            return await self._claim(lease, due, room, 0.0)
        later = room - self._runner.pending()  # no more than there are slots for: an idle worker could start it in time
        soon = [
            lane
            for lane in may
            if moment < lane.first_due <= moment + timedelta(seconds=ahead)
            and not self.allowance.limited(lane)
            and self._not_ahead.get(_place(lane)) != lane.first_due
        ]
        if soon and later > 0 and ahead > 0:
            # A lane that gave nothing is looked at again: if the same run is still its first, a timer waits for that.
            return await self._claim(lease, soon, later, ahead) or self._looked == float("-inf")
        return False

    async def _keep_limits(self, lease: Lease) -> None:
        """Learn which limits hold now, if it is time to; what may not start under them goes back."""
        if await self.allowance.refresh(lease.worker, self._clock.steady()):
            self._swept = self._looked = float("-inf")  # what was held back may lie below the lower bounds
            self._intake.give_back(self._runner.unstarted_but(self.allowance.keeps))

    async def _claim_at_once(self, lease: Lease) -> bool:
        """An idle worker that is told of a queue asks the lanes from which that queue has lately given runs, before it looks which lanes there
        are: one round trip less until the start. The look follows, so that no lane is kept waiting by others that go on giving."""
        told, self._told = self._told, set()
        if not told or not self._may_skip:
            return False
        moment, steady = self._clock.moment(), self._clock.steady()
        lanes = [
            lane
            for lane in (Lane(*place, bound) for place, bound in self._recent.items() if place[0] in told)
            if not self.allowance.limited(lane) and self.allowance.may(lane, steady)
        ]
        room = self._room()
        if not lanes or room <= 0 or any(lane.first_due <= moment for lane in self._lanes.values()):
            return False
        self._may_skip = False
        return await self._claim(lease, lanes, room, 0.0)

    async def open_lines(self) -> None:
        """Let those who may start now leave the lines of limited jobs. (The leader does so each second.)"""
        if not self.allowance.limited_jobs:
            return
        queues, rest = await self._store.unpark_jobs()
        wait = POLL if rest is None else min(max(rest.total_seconds(), _LINE_PAUSE), POLL)
        self._lines_at = self._clock.steady() + wait
        for queue in queues:
            self.wake(queue, sweep=True)

    async def _look(self) -> None:
        self._looked = self._clock.steady()
        self._may_skip = True
        if self._looked - self._checked >= _OVERDUE_CHECK:
            self._checked = self._looked
            if await self._store.timetable_due():
                log.warning("a bucket is overdue that no leader has promoted: promoting it")
                await self._store.promote()
        sweep = (
            self._looked - self._swept >= max(POLL, min(_SWEEP_SHARE * self._sweep_took, _SWEEP_AT_LEAST))
            or len(self._bounds) > _MAX_BOUNDS
        )
        if sweep:
            self._bounds.clear()
            self._swept = self._looked
        now, lanes = await self._store.lanes(self._queues, known=list(self._bounds.values()))
        if sweep:
            # The quicker of two: one slow answer (connecting, a busy moment) must not put off the next sweep.
            took = self._clock.steady() - self._looked
            self._sweep_took, self._sweep_before = min(took, self._sweep_before), took
        self._clock.observe(now)
        self._lanes = {_place(lane): lane for lane in lanes}
        if self._not_ahead:
            firsts = {place: lane.first_due for place, lane in self._lanes.items()}
            self._not_ahead = {place: due for place, due in self._not_ahead.items() if firsts.get(place) == due}
        if not any(lane.priority > LOWEST_PRIORITY for lane in lanes):
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
        if ahead == 0.0 and 0 < left < limit and not any(map(self._may_have, lanes)):
            self._looked = float("-inf")  # the lanes are empty of what is due; see what comes next, to set the timer
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

    def _may_have(self, lane: Lane) -> bool:
        return _place(lane) in self._lanes

    async def _claim_tier(self, lease: Lease, tier: Tier[Lane], limit: int, ahead: float) -> int:
        """A turn for everybody, then what some have left for those who have more; returns how many runs were taken."""
        lanes, left, first = tier.lanes, limit, True
        while lanes and left > 0:
            dealt = deal(lanes, left, self.allowance.weight, self._begun)
            asked = dict(zip(map(_place, lanes), dealt.quanta, strict=True))
            kinds = dict.fromkeys(map(self.allowance.limited, lanes))  # the one whose turn it is first
            more = [lane for lane in lanes if len(kinds) > 1 and not asked[_place(lane)]]
            served: dict[Place, int] = {}
            for limited in kinds:
                some = [lane for lane in lanes if self.allowance.limited(lane) is limited and lane not in more]
                if left > 0 and some:
                    # Where all lanes are of one kind, those without a turn stand in for those that turn out to be empty.
                    quanta = [max(asked[_place(lane)], 1) for lane in some]
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
            self._cursor = advance(self._cursor, [lane for lane in lanes if served.get(_place(lane))])
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
        for old, quantum in zip(lanes, quanta, strict=True):
            place = _place(old)
            count, last = taken.get(place, (0, old.first_due))
            bound = min(last, self._clock.moment() - _COMMIT_LAG)
            self._bounds[place] = Lane(*place, bound)
            if count and not limited:
                self._recent.pop(place, None)
                self._recent[place] = bound
            rests = limited and not self.allowance.may(old, self.last_round)
            if rests or count >= quantum or len(claim.runs) >= limit:
                self._lanes[place] = Lane(*place, last)
                if not rests:
                    more.append(self._lanes[place])
            else:
                self._lanes.pop(place, None)  # nothing more for us here, until the next look
                if ahead > 0 and heads.get(place) != old.first_due:
                    self._not_ahead[place] = old.first_due
                    self._looked = float("-inf")
        while len(self._recent) > _MAX_RECENT:
            del self._recent[next(iter(self._recent))]
        await self._take(claim, lease)
        return {place: count for place, (count, _) in taken.items()}, more

    async def _take(self, claim: Claim, lease: Lease) -> None:
        """Take in what may start. A limit was set before these runs were submitted, perhaps, and the message is still on its way."""
        if self.allowance.knows(claim.limits):
            self._intake.take(claim.runs, lease)
            return
        self.allowance.changed()
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
        timeout = POLL * (0.8 + 0.2 * random.random())  # jitter: workers should not poll in step
        if lease is not None and lease.valid():
            now = self._clock.now()
            upcoming = [
                lane.first_due.timestamp() - now - (0.0 if self._not_ahead.get(place) == lane.first_due else AHEAD)
                for place, lane in self._lanes.items()
                if lane.first_due.timestamp() > now
            ]
            if upcoming and self._room() > self._runner.pending():
                timeout = min(timeout, max(min(upcoming), 0.0))
            if self.allowance.limited_jobs:
                timeout = min(timeout, max(self._lines_at - self._clock.steady(), 0.0))
            rested = self.allowance.next_rest(self._lanes.values())
            if rested is not None and self._room() > 0:
                timeout = min(timeout, max(rested - self._clock.steady(), 0.0))
        else:
            timeout = 0.1
        try:
            async with asyncio.timeout(timeout):
                await self._runner.room.wait()
        except TimeoutError:
            pass


def _by_place(runs: Sequence[Claimed], lanes: Sequence[Lane]) -> dict[Place, tuple[int, datetime]]:
    """How many runs each lane gave, and the due time of the last."""
    if not runs:
        return {}
    if len(lanes) == 1:  # nothing to count one by one
        return {_place(lanes[0]): (len(runs), runs[-1].due_at)}
    counts = Counter([(run.queue, run.priority, run.tenant) for run in runs])
    last = {(run.queue, run.priority, run.tenant): run for run in runs}  # they come in the order of their due times
    return {place: (count, last[place].due_at) for place, count in counts.items()}


def _place(lane: Lane) -> Place:
    return lane.queue, lane.priority, lane.tenant
