"""Writing ticks ahead as runs: those of the current and the next minute, so that a leader may die and nothing starts late.

What is due to be written is read from the database each time (`schedule.next_at`): no schedule is kept in memory, nothing is advanced in
memory, and whether a tick is due is never judged from a wall clock. Ticks that were not written in time are judged by their misfire policy
first.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from fleetcron.decide.misfire import judge, needs_judgement
from fleetcron.decide.ticks import first_tick, plan
from fleetcron.model import Schedule
from fleetcron.scheduler.leadership import Leadership
from fleetcron.store.protocol import BUCKET, Fire, Fired, Looked, Store, Tick
from fleetcron.triggers import Cron, tzdata_version

log = logging.getLogger("fleetcron.scheduler")

BATCH = 500
"""Schedules a statement."""
_PASSES = 10_000


class Ticker:
    """One shard's ticks."""

    def __init__(self, store: Store, leadership: Leadership, lease: timedelta) -> None:
        self._store, self._leadership, self._lease = store, leadership, lease
        self._tzdata = tzdata_version()
        self._late: list[str] = []
        self._looked: Looked = None

    async def step(self) -> int:
        """Write what is missing up to the horizon; returns how many runs were written.

        While the database writes one batch, the next one is read and planned: half of the time goes into each.
        """
        written, progress = 0, False
        flight: asyncio.Task[Fired] | None = None
        flying: list[int] = []
        try:
            for _ in range(_PASSES):
                term = self._leadership.term()
                if term is None:
                    break
                now = await self._store.now()
                until = horizon(now)
                full = await self._store.full_queues()  # their ticks wait, and are judged when there is room
                schedules = await self._store.due_schedules(
                    self._leadership.shard, until, BATCH, without=full, flying=flying
                )
                fires, rest = self._plan(schedules, now, until)
                if flight is not None:
                    fired, flight = await flight, None
                    written, progress = written + fired.runs, progress or bool(fired.advanced)
                    if not fired.led:
                        break
                    if len(flying) == BATCH and not fired.advanced:
                        log.error(
                            "shard %d: %d schedules cannot be advanced; trying again later",
                            self._leadership.shard,
                            len(flying),
                        )
                        break
                progress = progress or bool(rest)
                await self._mend_or_judge(rest, term)
                last = len(schedules) < BATCH
                flight = asyncio.create_task(self._write(term, fires, until if last else None))
                flying = [fire.schedule_id for fire in fires]
                if last:
                    fired, flight, flying = await flight, None, []
                    written, progress = written + fired.runs, progress or bool(fired.advanced)
                    if not fired.led or not progress:
                        break
                    progress = False
        finally:
            if flight is not None:
                fired = await flight
                written += fired.runs
        return written

    def _plan(self, schedules: list[Schedule], now: datetime, until: datetime) -> tuple[list[Fire], list[Schedule]]:
        """What to write, and the schedules that have to be looked at first: broken, or with ticks that must be judged."""
        fires, rest = [], []
        for schedule in schedules:
            if schedule.error is not None or needs_judgement(schedule, now, self._lease):
                rest.append(schedule)
            else:
                fires.append(self._fire(schedule, now, until))
        return fires, rest

    async def _mend_or_judge(self, schedules: list[Schedule], term: int) -> None:
        for schedule in schedules:
            if schedule.error is not None:
                log.error("schedule %s cannot be evaluated here: %s", schedule.name, schedule.error)
                await self._store.schedule_error(schedule.id, schedule.error)
            else:
                leader = (self._leadership.shard, term)
                await self._store.judge(schedule.name, [], worker=None, leader=leader, lease=self._lease, decide=judge)

    async def _write(self, term: int, fires: list[Fire], until: datetime | None) -> Fired:
        fired = await self._store.fire(self._leadership.shard, term, fires, tzdata=self._tzdata, until=until)
        if not fired.led:
            self._leadership.step_down("its term is stale")
        return fired

    def _fire(self, schedule: Schedule, now: datetime, until: datetime) -> Fire:
        assert schedule.next_at is not None
        planned = plan(schedule, now, until, self._lease)
        ticks, before = [], schedule.prev_at
        for tick in planned.ticks:
            ticks.append(Tick(tick.nominal_at, tick.due_at, tick.late_at, before))
            before = tick.nominal_at
        return Fire(
            schedule_id=schedule.id,
            revision=schedule.revision,
            old_next=schedule.next_at,
            new_next=planned.new_next,
            ticks=ticks,
            prev_at=before,
        )

    async def mend(self) -> None:
        """Schedules that could not be evaluated, and those whose next tick was computed with other zone data, are looked at again."""
        shard, term = self._leadership.shard, self._leadership.term()
        if term is None:
            return
        for schedule in await self._store.broken_schedules(shard):
            if schedule.error is None:
                log.info("schedule %s can be evaluated again", schedule.name)
                await self._store.schedule_error(schedule.id, None)
        for schedule in await self._store.stale_zones(shard, self._tzdata):
            changed = isinstance(schedule.trigger, Cron)
            await self._store.retick(schedule.name, (shard, term), self._tzdata, first_tick if changed else None)

    async def judge_late(self) -> None:
        """Judge written ticks that nobody has started in time, also while no worker lives: a batch of schedules at a time, a second or two,
        since rescues wait for it. The next look goes on where the last one ended. What was judged and kept is late again one lease later:
        if each look began anew, ten thousand of those would hide all that come after them."""
        if not self._late:
            self._late, self._looked = await self._store.late_ticks(self._looked)
        batch, self._late = self._late[:BATCH], self._late[BATCH:]
        for name in batch:
            term = self._leadership.term()
            if term is None:
                return
            leader = (self._leadership.shard, term)
            await self._store.judge(name, [], worker=None, leader=leader, lease=self._lease, decide=judge)


def horizon(now: datetime) -> datetime:
    """The end of the next minute: ticks before it are written, runs due before it lie in `ready`."""
    return now.replace(second=0, microsecond=0) + 2 * BUCKET
