"""Each overlap policy under a job that is longer than its rhythm, with a kill -9 in the middle: exactly the runs and miss records that the
documentation (docs/how-to/choose-a-misfire-policy.md) predicts. In CI a job of 2.6 s every second; as a soak one of 10 s every 3 s for a
minute."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fleetcron import Every, Fleet, Miss
from fleetcron.model import Overlap
from tests.crash.test_kills import lines
from tests.support.processes import NodeProcess, on_both_stores, started, wait_until

APP = "tests.flow.overlap_app:fleet"
pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]
POLICIES: list[Overlap] = ["allow", "skip", "queue_one", "queue_all", "replace"]
SLACK = 0.9
"""Seconds in which a tick that is due is decided, and a run that has ended is known to have: nearer than that either answer is right."""
HOLE = 8.0
"""Seconds from a death until what the dead one had in hand is decided: its lease, a rescue, a claim."""


class Tried(NamedTuple):
    """A tick that started: the seconds at which it first did and at which it was over, and when its worker is known to have run it."""

    tick: float
    start: float
    end: float
    held: list[tuple[float, float]]

    def retried(self) -> list[tuple[float, float]]:
        """From when until when it waited for another attempt, after a death."""
        return [(end, start) for (_, end), (start, _) in itertools.pairwise(self.held)]


class Story:
    """What happened to the ticks of one schedule."""

    def __init__(self, policy: Overlap, log: Path, runs: dict[float, Any], killed: float, victim: int) -> None:
        self.policy, self.killed = policy, killed
        spans: dict[float, list[tuple[float, float]]] = {}
        ends = {(w[1], w[2], w[4]): float(w[3]) for what in ("end", "stopped") for w in lines(log, what)}
        for _, schedule, tick, start, pid in lines(log, "start"):
            if schedule == policy:
                end = ends.get((schedule, tick, pid), killed if int(pid) == victim else float("inf"))
                spans.setdefault(float(tick), []).append((float(start), end))
        self.tried = {
            tick: Tried(tick, held[0][0], runs[tick].finished_at.timestamp(), held) for tick, held in spans.items()
        }

    def when(self, tick: float) -> tuple[float, float]:
        """The earliest and the latest time at which it was decided what becomes of a tick."""
        near = self.killed - 2.5 <= tick <= self.killed + HOLE  # a worker may have it in hand two seconds ahead
        return tick, (max(tick, self.killed) + HOLE if near else tick + SLACK)

    def older(self, tick: float) -> Iterator[Tried]:
        return (run for run in self.tried.values() if run.tick < tick)

    def held(self, tick: float) -> bool | None:
        """Was an older run in a handler all the while that this tick was decided? None: it may have been."""
        first, last = self.when(tick)
        if any(start < first and last < end for run in self.older(tick) for start, end in run.held):
            return True
        return None if any(run.end > first - SLACK for run in self.older(tick)) else False

    def waited(self, tick: float) -> bool | None:
        """Did an older one wait all the while? (One that waits for another attempt is in the way only when that is due.)"""
        first, last = self.when(tick)
        if any(run.tick + SLACK < first and last < run.start for run in self.older(tick)):
            return True
        waits = [wait for run in self.older(tick) for wait in ((run.tick, run.start), *run.retried())]
        return None if any(since < last and until > first - SLACK for since, until in waits) else False

    def ran(self, tick: float) -> bool | None:
        """Does the documentation say that this tick runs? None: it was too close to tell."""
        match self.policy:
            case "allow" | "queue_all":
                return True
            case "skip":
                held = self.held(tick)
                return None if held is None else not held
            case "queue_one":
                waited = self.waited(tick)
                return None if waited is None else not waited
            case "replace":  # unless the next one came before it could start
                following = self.when(min((t for t in self.tried if t > tick), default=float("inf")))[0]
                free = all(run.end < following - SLACK for run in self.older(tick))
                return True if free and self.when(tick)[1] < following else None


@pytest.mark.parametrize(
    ("every", "takes", "ticks"), [(1, 2.6, 7), pytest.param(3, 10.0, 20, marks=[pytest.mark.soak])]
)
def test_a_long_job_and_a_kill(pg_url: str, tmp_path: Path, every: int, takes: float, ticks: int) -> None:
    """On both stores at once: it is mostly waiting."""
    on_both_stores(pg_url, tmp_path, lambda url, folder: long_job_and_kill(url, folder, every, takes, ticks))


def long_job_and_kill(store_url: str, folder: Path, every: int, takes: float, ticks: int) -> None:
    log = folder / "flow.log"

    def node(name: str, role: str) -> NodeProcess:
        args = ("--lease", "3s", "--concurrency", "50", "--role", role)
        return NodeProcess(store_url, APP, folder, *args, env={"FLOW_LOG": str(log)}, name=name)

    scheduler, workers = node("scheduler", "scheduler"), [node("one", "worker"), node("two", "worker")]
    with started(scheduler, *workers), Fleet(store_url).blocking as fleet:
        wait_until(lambda: len(fleet.nodes()) == 3 and fleet.leaders()[0].node, what="three nodes and a leader")
        first = (time.time() // every + 2) * every
        instants = [first + every * n for n in range(ticks)]
        options = {
            "misfire": "fire_all",
            "misfire_grace": "10m",
            "start": datetime.fromtimestamp(first, UTC),
            "end": datetime.fromtimestamp(instants[-1], UTC),
        }
        payload = {"seconds": takes}
        fleet.schedule_many(
            [
                (policy, "tick", Every(timedelta(seconds=every)), payload, {**options, "overlap": policy})
                for policy in POLICIES
            ]
        )
        wait_until(lambda: time.time() > instants[ticks // 2] + every / 2, within=60, what="the middle")
        busy = [int(line[4]) for line in lines(log, "start")]
        victim = max(workers, key=lambda worker: busy.count(worker.pid))
        victim.kill()
        killed = time.time()
        wait_until(
            lambda: time.time() > instants[-1] and not any(count_open(fleet)), within=ticks * takes + 60, what="the end"
        )
        runs = {(r.schedule, r.nominal_at.timestamp()): r for r in fleet.runs(limit=1000) if r.nominal_at is not None}
        misses = fleet.misses(limit=1000)
    assert any(line[4] == str(victim.pid) for line in lines(log, "start"))
    for policy in POLICIES:
        mine = {tick: run for (schedule, tick), run in runs.items() if schedule == policy}
        story = Story(policy, log, mine, killed, victim.pid)
        missed = check(story, mine, [miss for miss in misses if miss.schedule == policy], instants)
        states = [mine[tick].state for tick in instants]
        print(f"{policy}: {ticks} ticks, {len(story.tried)} ran, {len(missed)} missed; {' '.join(states)}")


def count_open(fleet: Any) -> list[int]:
    return [n for c in fleet.counts().values() for n in (c.ready, c.running, c.retrying)]


def check(story: Story, runs: dict[float, Any], misses: list[Miss], instants: list[float]) -> list[float]:
    """Each tick ran or is in a miss record, never both, as the policy says; returns those that are missed."""
    tried = story.tried
    missed = [t for t in instants if any(m.first.timestamp() <= t <= m.last.timestamp() for m in misses)]
    assert sorted([*tried, *missed]) == instants == sorted(runs)
    assert sum(miss.count for miss in misses) == len(missed)
    assert {miss.reason for miss in misses} <= {"overlap"}
    assert all(runs[tick].state == "missed" for tick in missed)
    for tick in instants:
        assert story.ran(tick) in (None, tick in tried), f"{story.policy}: the tick of {tick}: {tried}"
    decided = [tick for tick in instants if story.ran(tick) is not None]
    assert len(decided) >= len(instants) / 4, f"{story.policy}: too close to tell of almost every tick"
    if story.policy != "allow":  # nothing overlaps
        spans = sorted(span for run in tried.values() for span in run.held)
        assert all(later >= end - 0.05 for (_, end), (later, _) in itertools.pairwise(spans)), "two at a time"
    *before, last = sorted(tried)
    if story.policy == "replace":
        assert {runs[tick].state for tick in before} == {"cancelled"}
    else:
        assert {runs[tick].state for tick in before} == {"succeeded"}
    assert runs[last].state == "succeeded"
    return missed
