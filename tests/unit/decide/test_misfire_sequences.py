"""Many judgements, by a ticker and by workers that see different parts, in any order: what holds over all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations, count
from typing import NamedTuple

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from fleetcron.decide.bounds import bounded_count, bounded_latest, bounded_next, jitter_offset
from fleetcron.decide.misfire import Facts, Pending, Verdict, judge, late_at, needs_judgement
from fleetcron.decide.ticks import plan
from fleetcron.model import MISFIRES, Missed, Schedule
from fleetcron.triggers import Every

LEASE = timedelta(seconds=15)
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
WORKERS = 3


class Run(NamedTuple):
    nominal_at: datetime
    due_at: datetime
    late_at: datetime | None
    missed: Missed | None


class Start(NamedTuple):
    run: Run
    moment: datetime
    late: bool


class World:
    """A store in miniature: one schedule, its ready runs, and what each worker holds unstarted."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.now = BEGIN
        self.ids = count(1)
        self.ready: dict[int, Run] = {}
        self.held: list[dict[int, Run]] = [{} for _ in range(WORKERS)]
        self.starts: list[Start] = []
        self.missed = 0

    def tick(self) -> None:
        """The leader: judges what must be, writes ahead what need not."""
        if needs_judgement(self.schedule, self.now, LEASE):
            self.judge({}, leader=True)
        planned = plan(self.schedule, self.now, self.now + timedelta(seconds=40), LEASE)
        for tick in planned.ticks:
            self.ready[next(self.ids)] = Run(*tick, None)
        self.schedule = msgspec.structs.replace(self.schedule, next_at=planned.new_next)

    def claim(self, worker: int, limit: int) -> None:
        due = sorted((run.due_at, run_id) for run_id, run in self.ready.items() if run.due_at <= self.now)
        for _, run_id in due[:limit]:
            self.held[worker][run_id] = self.ready.pop(run_id)

    def work(self, worker: int) -> None:
        """Start what is in time; the rest only if a judgement keeps it."""
        mine, self.held[worker] = self.held[worker], {}
        late = {run_id: run for run_id, run in mine.items() if run.late_at is not None and self.now > run.late_at}
        for run_id, run in mine.items():
            if run_id not in late:
                self.starts.append(Start(run, self.now, late=False))
        if late:
            self.starts += [Start(run, self.now, late=True) for run in self.judge(late, leader=False)]

    def judge(self, held: dict[int, Run], *, leader: bool) -> list[Run]:
        """Apply a verdict over what the caller holds and what is ready; the kept ones of the caller.

        Only a leader writes unfired ticks, or writes them off: to a worker they are a reason to drop what it holds.
        """
        seen = {**self.ready, **held}
        pending = sorted(
            (
                Pending(run_id=run_id, nominal_at=run.nominal_at, missed=run.missed)
                for run_id, run in seen.items()
                if run.nominal_at <= self.now
            ),
            key=lambda run: run.nominal_at,
        )
        verdict: Verdict = judge(self.schedule, Facts(now=self.now, pending=tuple(pending), lease=LEASE))
        for run_id in verdict.drop:
            self.ready.pop(run_id, None)
        for run_id, missed in verdict.keep.items():
            if run_id in self.ready:
                self.ready[run_id] = self.ready[run_id]._replace(missed=missed)
        self.schedule = msgspec.structs.replace(self.schedule, judged_until=verdict.judged_until)
        if leader:
            self.schedule = msgspec.structs.replace(self.schedule, next_at=verdict.next_at)
            for tick in verdict.fire:
                after = bounded_next(self.schedule, tick.nominal_at)
                late = late_at(self.schedule, tick.nominal_at, after, LEASE)
                due = tick.nominal_at + jitter_offset(self.schedule)
                self.ready[next(self.ids)] = Run(tick.nominal_at, due, late, tick.missed)
        self.missed += sum(miss.count for miss in verdict.misses) if leader else len(verdict.drop)
        return [held[run_id]._replace(missed=missed) for run_id, missed in verdict.keep.items() if run_id in held]


class Round(NamedTuple):
    """Time passes, perhaps the leader acts, workers take some runs each, and get to work on them now or later."""

    wait: int
    leads: bool
    claims: list[tuple[int, int]]
    works: list[int]


workers = st.integers(0, WORKERS - 1)
rounds = st.builds(
    Round,
    st.integers(0, 90),
    st.booleans(),
    st.lists(st.tuples(workers, st.integers(1, 8)), max_size=4),
    st.lists(workers, max_size=4),
)
schedules = st.builds(
    lambda **options: Schedule(name="s", job="j", trigger=Every(options.pop("interval")), next_at=BEGIN, **options),
    interval=st.sampled_from([1, 4, 10, 60]),
    misfire=st.sampled_from(MISFIRES),
    misfire_grace=st.sampled_from([0, 5, 60]).map(lambda s: timedelta(seconds=s)),
    catchup_limit=st.sampled_from([2, 1000]),
    jitter=st.sampled_from([0, 30]).map(lambda s: timedelta(seconds=s)),
    end=st.none() | st.integers(0, 300).map(lambda s: BEGIN + timedelta(seconds=s)),
)


@settings(max_examples=300)
@given(schedules, st.lists(rounds, max_size=10))
def test_one_late_run_at_most_and_every_tick_accounted_for(schedule: Schedule, past: list[Round]) -> None:
    world = World(schedule)
    for one in past:
        world.now += timedelta(seconds=one.wait)
        if one.leads:
            world.tick()
        for worker, limit in one.claims:
            world.claim(worker, limit)
        for worker in one.works:
            world.work(worker)
        check(world)
    # Everything comes back: what is held gets done, the leader ticks, one worker takes the rest.
    for worker in range(WORKERS):
        world.work(worker)
    world.tick()
    world.claim(0, 10_000)
    world.work(0)
    check(world)
    latest = bounded_latest(world.schedule, world.now - jitter_offset(world.schedule))
    if world.schedule.misfire == "fire_once" and latest is not None and latest >= BEGIN:
        assert latest in {start.run.nominal_at for start in world.starts}  # coalesced into a run, not into nothing


def check(world: World) -> None:
    policy = world.schedule
    open_runs = [*world.ready.values(), *(run for held in world.held for run in held.values())]
    ticks = [start.run.nominal_at for start in world.starts] + [run.nominal_at for run in open_runs]
    assert len(ticks) == len(set(ticks))

    # No silent miss: each tick before next_at is a start, an open run, or counted in a miss record.
    step = timedelta(microseconds=1)
    border = policy.next_at or datetime(2100, 1, 1, tzinfo=UTC)
    assert bounded_count(policy, BEGIN - step, border - step) == len(ticks) + world.missed

    late = sorted((start for start in world.starts if start.late), key=lambda start: start.run.nominal_at)
    if policy.misfire == "fire_all":
        return
    for earlier, later in combinations(late, 2):
        # The second was not due yet when the first was decided on: it belongs to another outage.
        assert earlier.moment < later.run.due_at
    event(f"{policy.misfire}: {min(len(late), 3)} late starts")
    told = [run.missed.count for run in (*open_runs, *(start.run for start in world.starts)) if run.missed]
    assert sum(told) <= world.missed  # nobody is told of a tick twice
    if policy.misfire == "skip":
        for start in world.starts:
            assert start.moment - start.run.due_at <= max(policy.misfire_grace, timedelta(seconds=1))
