"""Each overlap policy under a job that is longer than its rhythm, with a kill -9 in the middle: exactly the runs and miss records that the
policy promises. The CI has a job of 1.7 s every 0.5 s for 8 s; the soak one of 10 s every 3 s for a minute."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from fleetcron import Fleet
from fleetcron.model import Overlap
from tests.crash.test_kills import lines
from tests.support.processes import NodeProcess, started, wait_until

APP = "tests.flow.overlap_app:fleet"
pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]
POLICIES: list[Overlap] = ["allow", "skip", "queue_one", "queue_all", "replace"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("every", "takes", "seconds"), [(1.0, 3.3, 8.0), pytest.param(3.0, 10.0, 60.0, marks=[pytest.mark.soak])]
)
def test_a_long_job_and_a_kill(
    store_url: str, tmp_path: Path, policy: Overlap, every: float, takes: float, seconds: float
) -> None:
    log = tmp_path / "flow.log"
    env = {"FLOW_LOG": str(log), "FLOW_EVERY": str(every), "FLOW_TAKES": str(takes), "FLOW_OVERLAP": policy}

    def node(name: str, *args: str) -> NodeProcess:
        return NodeProcess(store_url, APP, tmp_path, "--lease", "3s", "--concurrency", "50", *args, env=env, name=name)

    scheduler, worker = node("scheduler", "--role", "scheduler"), node("one", "--role", "worker")
    second = node("two", "--role", "worker")
    with started(scheduler, worker, second):
        wait_until(lambda: lines(log, "start"), what="the first start")
        begin = time.time()
        time.sleep(seconds / 2)
        last = lines(log, "start")[-1]
        victim = worker if int(last[3]) == worker.pid else second
        victim.kill()
        killed = time.time()
        time.sleep(seconds / 2)
        with Fleet(store_url).blocking as fleet:
            fleet.pause("tick")
            wait_until(
                lambda: not any(r.state in {"ready", "running", "retrying"} for r in fleet.runs()),
                within=90,
                what="the end",
            )
            runs = {r.nominal_at.timestamp(): r for r in fleet.runs(limit=1000) if r.nominal_at is not None}
            misses = [m for m in fleet.misses("tick", limit=1000) if m.reason == "overlap"]
            others = [m for m in fleet.misses("tick", limit=1000) if m.reason != "overlap"]
    first = float(lines(log, "start")[0][1])
    named = [t for t in (first + every * n for n in range(int((seconds + 2) / every))) if t in runs]
    missed = sorted({t for t in named for m in misses if m.first.timestamp() <= t <= m.last.timestamp()})
    starts = sorted((float(s[2]), float(s[1]), int(s[3])) for s in lines(log, "start"))
    ends = {(float(e[1]), int(e[3])): float(e[2]) for e in lines(log, "end") + lines(log, "stopped")}
    print(f"{policy}: {len(named)} ticks, {len(starts)} starts, {len(missed)} missed")
    assert len(named) >= seconds / every - 1
    # Each tick is a run that started, or a miss record: never both, never neither. (One replaced after its start is cancelled.)
    tried = {nominal for _, nominal, _ in starts}
    withdrawn = {t for t in named for m in others if m.first.timestamp() <= t <= m.last.timestamp()}
    assert set(named) == {t for t in named if t in tried} | set(missed) | withdrawn
    assert not (tried & set(missed))
    assert all(runs[t].state == "missed" for t in missed)
    if policy == "allow":
        assert missed == []
        assert {runs[t].state for t in named if t in tried} == {"succeeded"}
        return
    # Nothing overlaps: a run begins when the one before has ended, or its worker was killed.
    pid = victim.pid
    spans = [(at, ends.get((nominal, who), killed if who == pid else None)) for at, nominal, who in starts]
    for (_, end), (at, _) in itertools.pairwise(spans):
        assert end is not None
        assert at >= end - 0.05, "two at a time"
    done = {t for t in tried if runs[t].state == "succeeded"}
    match policy:
        case "queue_all":
            assert missed == []
            assert done >= {t for t in named if t not in withdrawn}
        case "skip" | "queue_one":
            assert missed
            assert done == tried
        case "replace":
            assert {runs[t].state for t in tried} <= {"succeeded", "cancelled"}
            assert max(tried) in done, "the newest is the one that ends"
    assert begin < killed
    assert Path(log).exists()
