"""A role's way to the store: it notes when something will be due, and a crashed role's is cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

from fleetcron.decide.misfire import Verdict
from fleetcron.errors import StoreUnavailable
from fleetcron.model import LOWEST_PRIORITY
from fleetcron.store.protocol import Claim, Done, Fire, Fired, Lane, LimitedClaim, Look, Settled, Store
from fleetcron.testing.clock import STEP, Timeline, VirtualClock


class Link:
    """The store, for one role. What it does not name here goes straight through.

    `heads`: the first waiting run of each lane, as last seen. `judged`: how many judgements changed something. `made_room`: how many
    attempts of backfills' runs have ended. `timeline` gets the due times of runs in this role's hands, `late` the instants at which
    unstarted ticks become misfires.
    """

    def __init__(self, store: Store, clock: VirtualClock, timeline: Timeline, late: Timeline) -> None:
        self._store, self._clock, self._timeline, self._late = store, clock, timeline, late
        self.heads: list[Lane] = []
        self.judged = self.made_room = 0
        self._backfilled: set[int] = set()
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        return _gone if self.cut and name not in ("clock", "kind", "absence_is_proof") else getattr(self._store, name)

    async def fire(self, shard: int, term: int, fires: Sequence[Fire], *, tzdata: str, until: datetime | None) -> Fired:
        for fire in fires:
            for tick in fire.ticks:
                if tick.late_at is not None:
                    self._late.add(tick.late_at + STEP)
        return await self._store.fire(shard, term, fires, tzdata=tzdata, until=until)

    async def judge(self, schedule: str, leased: Sequence[Any], *, lease: timedelta, **how: Any) -> Verdict | None:
        verdict = await self._store.judge(schedule, leased, lease=lease, **how)
        if verdict is not None and (verdict.keep or verdict.drop or verdict.fire or verdict.misses):
            self.judged += 1
            # Those that run after all are judged again if they do not start.
            self._late.add(self._clock.now + lease + STEP)
        return verdict

    async def lanes(self, queues: Sequence[str] | None, *args: Any, **how: Any) -> Look:
        look = await self._store.lanes(queues, *args, **how)
        seen = [lane for lane in self.heads if how.get("begin")]  # it goes on behind those
        self.heads = list({(lane.queue, lane.priority, lane.tenant): lane for lane in (*seen, *look.lanes)}.values())
        return look

    async def claim(self, worker: int, lanes: Sequence[Lane], **how: Any) -> Claim:
        claim = await self._store.claim(worker, lanes, **how)
        for run in claim.runs:
            if run.due_at > self._clock.now:
                self._timeline.add(run.due_at)
        self._note(claim)
        return claim

    async def claim_limited(self, worker: int, lanes: Sequence[Lane], **how: Any) -> LimitedClaim:
        found = await self._store.claim_limited(worker, lanes, **how)
        for rest in found.rest.values():
            if rest is not None:
                self._timeline.add(self._clock.now + rest)
        self._note(found.claim)
        return found

    def _note(self, claim: Claim) -> None:
        self._backfilled.update(run.run_id for run in claim.runs if run.priority > LOWEST_PRIORITY)

    def _ended(self, run_ids: set[int]) -> set[int]:
        self.made_room += len(self._backfilled & run_ids)
        self._backfilled -= run_ids
        return run_ids

    async def unpark_jobs(self) -> tuple[list[str], timedelta | None]:
        queues, rest = await self._store.unpark_jobs()
        if rest:
            self._timeline.add(self._clock.now + rest)
        return queues, rest

    async def complete(self, worker: int, done: Sequence[Done]) -> set[int]:
        return set() if self.cut else self._ended(await self._store.complete(worker, done))

    async def settle(self, worker: int, settled: Sequence[Settled]) -> set[int]:
        return set() if self.cut else self._ended(await self._store.settle(worker, settled))

    async def listen(self, wake: Callable[[str], None]) -> None:
        """Wake-ups only spare a look, and virtual time looks at every instant that counts."""


async def _gone(*_: Any, **__: Any) -> NoReturn:
    raise StoreUnavailable("this worker has crashed (VirtualFleet.crash_worker)")
