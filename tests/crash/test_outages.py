"""Everything down, only the workers down, a worker frozen: across ticks that were already written ahead, under each misfire policy.

The ticks of the outage must be exactly the late runs that the policy allows, plus miss records; the ticks after it must be on time.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from fleetcron import Fleet
from tests.crash.test_kills import APP, lines
from tests.support.processes import NodeProcess, started, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

EVERY = 2
GRACE = 3.0
DOWN = 9.0
LEASE = 3.0
AHEAD = 2.0  # seconds that a worker claims ahead
AFTER = LEASE + 6  # what a dead worker held comes back when the database has been watched for a lease time
POLICIES = ["fire_all", "fire_once", "skip"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "crash.log"


def node(url: str, folder: Path, log: Path, policy: str, name: str, *args: str) -> NodeProcess:
    env = {"CRASH_LOG": str(log), "CRASH_POLICY": policy, "CRASH_EVERY": f"{EVERY}s", "CRASH_GRACE": f"{GRACE}s"}
    return NodeProcess(url, APP, folder, "--lease", f"{LEASE}s", *args, env=env, name=name)


def settled(url: str, log: Path, policy: str, down: tuple[float, float], until: float) -> None:
    """Judge what happened to the ticks of `down`, and that those from 2 s after it until `until` were on time."""
    with Fleet(url).blocking as fleet:
        misses = fleet.misses("tick")
        runs = {r.nominal_at.timestamp(): r for r in fleet.runs(schedule="tick", limit=10_000)}
    starts: dict[float, list[float]] = {}
    told: dict[float, int] = {}
    for line in lines(log, "tick"):
        if int(line[4]) > 1:
            continue  # a tick that had started when its worker died: tried again, whatever the policy
        starts.setdefault(float(line[1]), []).append(float(line[2]))
        told[float(line[1])] = int(line[5])
    named = [
        float(t) for t in range(math.ceil(down[0] / EVERY) * EVERY, math.floor(down[1] / EVERY) * EVERY + 1, EVERY)
    ]
    missed = {t for t in named for m in misses if m.first.timestamp() <= t <= m.last.timestamp() and t not in starts}
    ran = [t for t in named if t in starts]
    assert sorted(missed | set(ran)) == named, "a tick of the outage left neither a run nor a miss record"
    # One that had just started when its process was stopped may not have been noted as started: it is run again, at least once.
    assert all(len(s) == 1 for s in starts.values() if min(s) > down[0] + 0.2), "a tick started twice"
    late = [t for t in ran if starts[t][0] - t > GRACE]
    match policy:
        case "fire_all":
            assert ran == named
            waited = [t for t in late if t > down[0] + AHEAD]  # what the dead worker held comes back by rescue, later
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
        assert missed, "nothing was judged away"
        assert all(runs[t].state == "missed" for t in missed if t in runs)
    after = [
        float(t) for t in range(math.ceil((down[1] + 2) / EVERY) * EVERY, math.floor(until / EVERY) * EVERY + 1, EVERY)
    ]
    assert after
    assert all(starts[t][0] - t < 0.5 for t in after), "a tick after the outage was late"


def outage(fleet: Any, seconds: float) -> tuple[float, float]:
    begin = time.time()
    time.sleep(seconds)
    return begin, time.time()


@pytest.mark.parametrize("policy", POLICIES)
def test_everything_down(store_url: str, tmp_path: Path, log: Path, policy: str) -> None:
    first = [node(store_url, tmp_path, log, policy, f"first{n}") for n in (1, 2)]
    second = [node(store_url, tmp_path, log, policy, f"second{n}") for n in (1, 2)]
    with started(*first):
        wait_until(lambda: lines(log, "tick"), what="the first tick")
        for n in first:
            n.kill()
        down = outage(None, DOWN)
        with started(*second):
            wait_until(lambda: lines(log, "tick") and time.time() > down[1] + AFTER, within=60, what="the end")
            until = time.time() - 1
    settled(store_url, log, policy, down, until)


@pytest.mark.parametrize("policy", POLICIES)
def test_workers_down(store_url: str, tmp_path: Path, log: Path, policy: str) -> None:
    scheduler = node(store_url, tmp_path, log, policy, "scheduler", "--role", "scheduler")
    worker = node(store_url, tmp_path, log, policy, "worker", "--role", "worker")
    with started(scheduler, worker):
        wait_until(lambda: lines(log, "tick"), what="the first tick")
        worker.stop()
        down = outage(None, DOWN)
        worker.start()
        wait_until(lambda: time.time() > down[1] + AFTER, within=60, what="the end")
        until = time.time() - 1
    settled(store_url, log, policy, down, until)


@pytest.mark.parametrize("policy", POLICIES)
def test_worker_frozen_and_thawed(pg_url: str, tmp_path: Path, log: Path, policy: str) -> None:
    """SIGSTOP for 10 s, three times the lease, then SIGCONT: what it had prefetched is judged before anything starts."""
    scheduler = node(pg_url, tmp_path, log, policy, "scheduler", "--role", "scheduler")
    worker = node(pg_url, tmp_path, log, policy, "worker", "--role", "worker")
    with started(scheduler, worker):
        wait_until(lambda: len(lines(log, "tick")) > 1, what="the first ticks")
        worker.freeze()
        down = outage(None, 10)
        worker.thaw()
        wait_until(lambda: time.time() > down[1] + AFTER, within=60, what="the end")
        until = time.time() - 1
    settled(pg_url, log, policy, down, until)
