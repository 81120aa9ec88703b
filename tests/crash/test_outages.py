"""Everything down, only the workers down, a worker frozen: across ticks that were already written ahead, under each misfire policy.

The ticks of the outage must be exactly the late runs that the policy allows, plus miss records; the ticks after it must be on time.
One outage strikes three schedules, one of each policy: the policies need not wait one after the other, nor the
stores.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fleetcron import Fleet, Miss
from tests.crash.test_kills import APP, lines
from tests.support.processes import NodeProcess, on_both_stores, started, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

EVERY = 2
GRACE = 3.0
DOWN = 9.0
LEASE = 3.0
AHEAD = 2.0  # seconds that a worker claims ahead
AFTER = LEASE + 6  # what a dead worker held comes back when the database has been watched for a lease time
POLICIES = ["fire_all", "fire_once", "skip"]
ON_TIME = 1.0  # seconds: a tick that waited for the end of an outage, for a lease or for a rescue is later than that


def node(url: str, folder: Path, log: Path, name: str, *args: str) -> NodeProcess:
    env = {
        "CRASH_LOG": str(log),
        "CRASH_POLICY": " ".join(POLICIES),
        "CRASH_EVERY": f"{EVERY}s",
        "CRASH_GRACE": f"{GRACE}s",
    }
    return NodeProcess(url, APP, folder, "--lease", f"{LEASE}s", *args, env=env, name=name)


def ticking(log: Path, times: int = 1) -> bool:
    """Has every schedule started so often?"""
    return all(len(lines(log, f"tick/{policy}")) >= times for policy in POLICIES)


class Outage(NamedTuple):
    """From when until when nobody worked, when the workers were ready again, and when they had had time for everything."""

    begin: float
    end: float
    ready: float
    until: float

    @classmethod
    def over(cls, begin: float, end: float, *workers: NodeProcess) -> Outage:
        """Wait until it is."""
        wait_until(lambda: all(worker.ready() for worker in workers), what="the workers' word")
        ready = time.time()
        time.sleep(AFTER)
        return cls(begin, end, ready, time.time() - 1)


def settled(url: str, log: Path, outage: Outage) -> None:
    """Judge what happened to the ticks of the outage, and that those from 2 s after it were on time."""
    with Fleet(url).blocking as fleet:
        for policy in POLICIES:
            misses = fleet.misses(f"tick/{policy}")
            runs = {r.nominal_at.timestamp(): r for r in fleet.runs(schedule=f"tick/{policy}", limit=10_000)}
            settled_by(policy, lines(log, f"tick/{policy}"), misses, runs, outage)


def settled_by(
    policy: str,
    told_of: list[list[str]],
    misses: list[Miss],
    runs: dict[float, Any],
    outage: Outage,
) -> None:
    """The same for the schedule of one policy; `told_of` is what its handler wrote."""
    starts: dict[float, list[float]] = {}
    told: dict[float, int] = {}
    for line in told_of:
        if int(line[4]) > 1:
            continue  # a tick that had started when its worker died: tried again, whatever the policy
        starts.setdefault(float(line[1]), []).append(float(line[2]))
        told[float(line[1])] = int(line[5])
    named = [
        float(t)
        for t in range(math.ceil(outage.begin / EVERY) * EVERY, math.floor(outage.end / EVERY) * EVERY + 1, EVERY)
    ]
    missed = {t for t in named for m in misses if m.first.timestamp() <= t <= m.last.timestamp() and t not in starts}
    ran = [t for t in named if t in starts]
    assert sorted(missed | set(ran)) == named, f"{policy}: a tick of the outage left neither a run nor a miss record"
    # One that had just started when its process was stopped may not have been noted as started: it is run again, at least once.
    assert all(len(s) == 1 for s in starts.values() if min(s) > outage.begin + 0.2), f"{policy}: a tick started twice"
    late = [t for t in ran if starts[t][0] - t > GRACE]
    match policy:
        case "fire_all":
            assert ran == named
            waited = [
                t for t in late if t > outage.begin + AHEAD
            ]  # what the dead worker held comes back by rescue, later
            begun = [round(starts[t][0], 1) for t in sorted(waited)]
            assert begun == sorted(begun), "not oldest first"
        case "fire_once":
            assert len(late) <= 1, f"{len(late)} late runs under fire_once"
            assert len(ran) <= 2
            held = AHEAD / EVERY + 1  # judged after the run had started: the next late run is told
            assert 0 <= sum(m.count for m in misses) - sum(told.values()) <= held, (
                "the run was not told what was judged away for it"
            )
        case "skip":
            assert not late, f"later than its grace under skip: {[(t, starts[t]) for t in late]}"
            assert len(ran) <= 2
    if policy != "fire_all":
        assert missed, f"{policy}: nothing was judged away"
        assert all(runs[t].state == "missed" for t in missed if t in runs)
    on_time = max(outage.end + 2, outage.ready + 1)
    after = [
        float(t) for t in range(math.ceil(on_time / EVERY) * EVERY, math.floor(outage.until / EVERY) * EVERY + 1, EVERY)
    ]
    assert after
    behind = [(t, starts.get(t)) for t in after if t not in starts or starts[t][0] - t >= ON_TIME]
    assert not behind, f"{policy}: ticks after the outage were late: {behind}"


def test_everything_down(pg_url: str, tmp_path: Path) -> None:
    on_both_stores(pg_url, tmp_path, everything_down)


def everything_down(store_url: str, folder: Path) -> None:
    log = folder / "crash.log"
    first = [node(store_url, folder, log, f"first{n}") for n in (1, 2)]
    second = [node(store_url, folder, log, f"second{n}") for n in (1, 2)]
    with started(*first):
        wait_until(lambda: ticking(log), what="the first ticks")
        for n in first:
            n.kill()
        begin = time.time()
        time.sleep(DOWN)
        end = time.time()
        with started(*second):
            outage = Outage.over(begin, end, *second)
    settled(store_url, log, outage)


def test_workers_down(pg_url: str, tmp_path: Path) -> None:
    on_both_stores(pg_url, tmp_path, workers_down)


def workers_down(store_url: str, folder: Path) -> None:
    log = folder / "crash.log"
    scheduler = node(store_url, folder, log, "scheduler", "--role", "scheduler")
    worker = node(store_url, folder, log, "worker", "--role", "worker")
    with started(scheduler, worker):
        wait_until(lambda: ticking(log), what="the first ticks")
        worker.stop()
        begin = time.time()
        time.sleep(DOWN)
        end = time.time()
        worker.start()
        outage = Outage.over(begin, end, worker)
    settled(store_url, log, outage)


def test_worker_frozen_and_thawed(pg_url: str, tmp_path: Path) -> None:
    """SIGSTOP for 9 s, three times the lease, then SIGCONT: what it had prefetched is judged before anything starts."""
    log = tmp_path / "crash.log"
    scheduler = node(pg_url, tmp_path, log, "scheduler", "--role", "scheduler")
    worker = node(pg_url, tmp_path, log, "worker", "--role", "worker")
    with started(scheduler, worker):
        wait_until(lambda: ticking(log, 2), what="the first ticks")
        worker.freeze()
        begin = time.time()
        time.sleep(DOWN)
        end = time.time()
        worker.thaw()
        outage = Outage.over(begin, end, worker)
    settled(pg_url, log, outage)
