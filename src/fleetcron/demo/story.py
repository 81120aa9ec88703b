"""The plot: five acts on a living fleet. Each waits for what it needs to see, with a deadline, and never for luck."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fleetcron.clock import sleep
from fleetcron.demo import app, pipeline
from fleetcron.demo.comment import Commentator
from fleetcron.demo.errors import DemoFailed
from fleetcron.demo.facts import Facts, Frozen, Killed, Outage, Poison, SeenSchedule, Takeover, named, seen, ticks_until
from fleetcron.demo.nodes import Nodes
from fleetcron.demo.telling import Teller
from fleetcron.demo.verdicts import POLICIES, TICKS_DOWN, UNNOTED
from fleetcron.demo.watch import LOOK, MidRun, Watch
from fleetcron.demo.witness import read_witness
from fleetcron.errors import StoreError
from fleetcron.fleet import Fleet
from fleetcron.model import MISFIRES, State
from fleetcron.run import Run
from fleetcron.triggers import Cron, Every

NIGHTLY = "nightly-report"
NIGHT = Cron("*/5 * * * * *")
EVERY, GRACE = timedelta(seconds=4), timedelta(seconds=1)
"""Of the policy schedules: after an outage of three ticks the nodes have four seconds to start before the next."""
BYSTANDERS = 10
READY_WITHIN = 15.0


class Story:
    """`fleet` is open and declares the demo's jobs; in `folder` the nodes leave reports and what the witness saw."""

    def __init__(self, fleet: Fleet, nodes: Nodes, teller: Teller, folder: Path) -> None:
        self._fleet, self._nodes, self._teller, self._folder = fleet, nodes, teller, folder
        self._schedules = [NIGHTLY]
        self._watch = Watch(fleet, nodes, folder)
        self._comment = Commentator(fleet, nodes, teller, self._schedules)

    async def play(self) -> Facts:
        """From the start of the nodes to the facts; the nodes live on. Raises DemoFailed when an act waits in vain."""
        began = await self._start()
        facts = await self._beside(self._acts(began), self._nodes.keep(), self._comment.run())
        await self._comment.once()
        for name in self._schedules:  # a database that is kept must not owe ticks
            await self._fleet.pause(name)
        return facts

    async def _acts(self, began: datetime) -> Facts:
        killed = await self._kill_a_worker(began)
        takeover, mid_run = await self._kill_the_leader()
        frozen = await self._sleep_through_the_lease(mid_run)
        poison = await self._poison(began)
        first, outage = await self._outage()
        until = first + (TICKS_DOWN + 1) * EVERY
        ticks = {NIGHTLY: named(NIGHT, began, until)}
        ticks |= {f"{POLICIES}{policy}": named(Every(EVERY, first), first - EVERY, until) for policy in MISFIRES}
        await self._watch.over(ticks)
        runs = await ticks_until(self._fleet, self._schedules, until)
        ids = [*(run.id for run in runs), poison.run_id, *poison.bystanders]
        return Facts(
            schedules=tuple([await self._seen_schedule(name, named) for name, named in ticks.items()]),
            runs=tuple([seen(await self._fleet.run(run_id)) for run_id in sorted(ids)]),
            misses=tuple(miss for miss in await self._fleet.misses() if miss.first <= until),
            letters=tuple(await self._fleet.dead_letters()),
            witnessed=tuple(read_witness(self._folder)),
            killed=killed,
            takeover=takeover,
            frozen=frozen,
            outage=outage,
            poison=poison,
        )

    async def _seen_schedule(self, name: str, ticks: tuple[datetime, ...]) -> SeenSchedule:
        schedule = await self._fleet.get_schedule(name)
        assert schedule.misfire is not None
        owed = schedule.owed.count if schedule.owed is not None else 0
        return SeenSchedule(name=name, misfire=schedule.misfire, grace=schedule.misfire_grace, ticks=ticks, owed=owed)

    async def _start(self) -> datetime:
        """Start the nodes while the schedule is paused, so that its first night finds them ready; since when it ticks."""
        self._teller.act("The fleet starts")
        await self._fleet.pause(NIGHTLY)
        self._nodes.start()
        await self._nodes.await_ready(READY_WITHIN)
        leader, node = await self._watch.leader()
        self._teller.say(f"2 schedulers and 2 workers are ready; {node.name} leads in term {leader.term}")
        now = await self._watch.now()
        night = _next_night(now)
        if night - now < timedelta(seconds=1.5):  # a leader looks once a second: so near a night would start late
            await self._watch.sleep_until(night)
        began = await self._watch.now()
        await self._fleet.resume(NIGHTLY)
        self._teller.say(f"{NIGHTLY} is resumed: a night every 5 s, each brings a month of weather; misfire=fire_all")
        return began

    async def _kill_a_worker(self, began: datetime) -> Killed:
        self._teller.act("Act 1: kill -9 of a worker in mid-run")
        run, night, worker, pid, _ = await self._watch.mid_run(NIGHTLY, after=began)
        worker.signal(signal.SIGKILL)
        self._teller.strike(f"kill -9 {worker.name} ({pid}): night {_clock(night)} was extracted, and being aggregated")
        done = await self._watch.finished(run.id)
        result = _result(done)
        await self._comment.once()
        self._teller.aside(
            f"extract was not repeated: it was done by pid {result['extracted_by']}, "
            f"and the report was published by pid {result['published_by']}"
        )
        return Killed(run_id=run.id, pid=pid)

    async def _kill_the_leader(self) -> tuple[Takeover, MidRun]:
        self._teller.act("Act 2: kill -9 of the leader, just before a night")
        night = _next_night(await self._watch.now() + timedelta(seconds=1))
        # The standby cannot be there in time: a leader's term lasts for more than a second after any renewal.
        await self._watch.sleep_until(night - timedelta(seconds=0.5))
        leader, node = await self._watch.leader()
        node.signal(signal.SIGKILL)
        killed_at = await self._watch.now()
        self._teller.strike(
            f"kill -9 {node.name} ({leader.pid}), leader in term {leader.term}; the next night is {_clock(night)}"
        )
        mid_run = await self._watch.mid_run(NIGHTLY, after=killed_at)
        late = (mid_run.run.started_at or mid_run.night) - mid_run.night
        self._teller.say(
            f"night {_clock(mid_run.night)} started {late.total_seconds() * 1000:.0f} ms after its instant: "
            "ticks are written up to two minutes ahead"
        )
        await self._freeze(mid_run)
        after, node = await self._watch.leader(above=leader.term)
        self._teller.say(f"{node.name} leads in term {after.term}")
        return Takeover(
            tick=night,
            killed_at=killed_at,
            old_term=leader.term,
            new_term=after.term,
            led_again_at=after.since or await self._watch.now(),
        ), mid_run

    async def _freeze(self, mid_run: MidRun) -> None:
        """Stop the worker where it does not hold the database's lock: stopped with it, it would stop everybody."""
        self._teller.act("Act 3: a worker sleeps through its lease")
        run, night, worker, pid, fence = mid_run
        for _ in range(20):
            worker.signal(signal.SIGSTOP)
            try:
                async with asyncio.timeout(0.5):
                    await self._fleet.store.watch()  # a write that says no more than "the database was there"
            except (TimeoutError, StoreError):
                worker.signal(signal.SIGCONT)
                await sleep(LOOK)
            else:
                self._teller.strike(
                    f"kill -STOP {worker.name} ({pid}) in the middle of night {_clock(night)}, which it owns under fence {fence}"
                )
                return
        raise DemoFailed(f"{worker.name} (run {run.id}) could not be stopped without the database's lock in its hands")

    async def _sleep_through_the_lease(self, mid_run: MidRun) -> Frozen:
        run, _, worker, pid, fence = mid_run
        done = await self._watch.finished(run.id)
        await self._comment.once()
        self._teller.aside(
            f"the sleeper's lease had run out; its successor owned the run under fence {done.attempts[-1].fence}"
        )
        worker.signal(signal.SIGCONT)
        self._teller.strike(f"kill -CONT {worker.name} ({pid}): it wakes up in work that is no longer its own")
        self._teller.say(f"the sleeper's attempt was {await self._watch.end_of(run.id, fence)}")
        report = self._folder / "reports" / _result(done)["report"]
        try:
            pipeline.publish(report, "what the sleeper would have written\n", fence)
        except pipeline.StaleFence as error:
            self._teller.say(f"a write to the report under its fence is refused: {error}")
            refused = True
        else:
            self._teller.say("a write to the report under its fence was accepted", "red")
            refused = False
        return Frozen(run_id=run.id, pid=pid, fence=fence, report_fence=pipeline.fence_of(report), refused=refused)

    async def _poison(self, began: datetime) -> Poison:
        self._teller.act("Act 4: a poison job")
        await self._watch.over({NIGHTLY: named(NIGHT, began, await self._watch.now())})
        deaths = self._nodes.deaths
        poison = await self._fleet.submit("poison")
        self._teller.strike(
            f"run {poison.id} is submitted: it kills the worker that runs it, as a crash in C code would"
        )

        async def died() -> bool:
            return (await poison.refresh()).state in (State.RETRYING, State.FAILED)

        await self._watch.until(died, "a worker died of the poison", 10.0)
        beside = await self._fleet.submit_many("tally", [{}] * BYSTANDERS)
        self._teller.say(f"its first worker is dead; {BYSTANDERS} harmless runs are submitted beside it")
        for run_id in beside.ids:
            await self._watch.finished(run_id)
        done = await self._watch.finished(poison.id)
        await self._nodes.await_ready(READY_WITHIN)  # its last victim is started again, and counted
        deaths = self._nodes.deaths - deaths
        self._teller.say(
            f"run {poison.id}: {done.state}, a dead letter after {len(done.attempts)} attempts; the others are done"
        )
        if deaths > len(done.attempts):
            self._teller.aside(
                f"it took {deaths} workers: one that dies before the start of a run could be noted costs the run no attempt "
                f"({UNNOTED} times at most)"
            )
        beside_ids = tuple(beside.ids)
        return Poison(run_id=poison.id, max_attempts=app.POISON_ATTEMPTS, deaths=deaths, bystanders=beside_ids)

    async def _outage(self) -> tuple[datetime, Outage]:
        """The first tick of the policy schedules, and the outage that begins after it."""
        self._teller.act(f"Act 5: everything is down for {TICKS_DOWN} ticks, under each misfire policy")
        first = (await self._watch.now()).replace(microsecond=0) + timedelta(seconds=3)
        for policy in MISFIRES:
            name = f"{POLICIES}{policy}"
            await self._fleet.schedule(name, "tally", Every(EVERY, first), misfire=policy, misfire_grace=GRACE)
            self._schedules.append(name)
        self._teller.say(
            f"three new schedules tick every {EVERY.seconds} s from {_clock(first)}; misfire_grace={GRACE.seconds}s"
        )
        await self._watch.over({f"{POLICIES}{policy}": [first] for policy in MISFIRES})
        down_at = await self._watch.now()
        self._nodes.kill_all()
        self._teller.strike("kill -9 of all four nodes")
        ticks = [first + n * EVERY for n in range(1, TICKS_DOWN + 1)]
        self._teller.aside(f"the ticks at {', '.join(map(_clock, ticks))} find nobody")
        await self._watch.sleep_until(ticks[-1] + GRACE + timedelta(seconds=0.2))
        self._nodes.start()
        self._teller.say("the nodes are started again")
        await self._nodes.await_ready(READY_WITHIN)
        up_at = await self._watch.now()
        self._teller.say(f"all four are ready, {(up_at - down_at).total_seconds():.1f} s after they were killed")
        return first, Outage(down_at=down_at, up_at=up_at)

    async def _beside(self, acts: Coroutine[Any, Any, Facts], *others: Coroutine[Any, Any, None]) -> Facts:
        """What the acts return, while the others go on; what ends one of those by a fault is raised."""
        tasks = [asyncio.create_task(other) for other in others]
        try:
            facts = await acts
        finally:
            for task in tasks:
                task.cancel()
            ended: Sequence[BaseException | None] = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error
        return facts


def _next_night(after: datetime) -> datetime:
    night = NIGHT.next(after)
    assert night is not None
    return night


def _result(run: Run) -> dict[str, Any]:
    """What the nightly report returned. Raises DemoFailed if it did not succeed."""
    if not isinstance(run.result, dict):
        raise DemoFailed(f"run {run.id} ({run.job}) is {run.state}: {run.error or run.reason}")
    return run.result


def _clock(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}"
