"""A backfill of two real nodes, which both schedule and work, with kill -9 of either: each tick is done, one at a time, in order."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetcron import Every, Fleet
from tests.crash.test_kills import lines
from tests.support.processes import NodeProcess, on_both_stores, wait_until

APP = "tests.flow.overlap_app:fleet"
pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]
TICKS, KILLS = 40, 3


def test_C93_one_at_a_time_and_in_order_whoever_dies(pg_url: str, tmp_path: Path) -> None:
    on_both_stores(pg_url, tmp_path, one_at_a_time_and_in_order)


def one_at_a_time_and_in_order(store_url: str, folder: Path) -> None:
    log = folder / "flow.log"
    numbers = itertools.count(1)

    def node() -> NodeProcess:
        args = ("--lease", "3s", "--election-ttl", "1s", "--concurrency", "5")
        return NodeProcess(store_url, APP, folder, *args, env={"FLOW_LOG": str(log)}, name=f"node{next(numbers)}")

    killed: dict[int, float] = {}
    with ExitStack() as stack, Fleet(store_url).blocking as fleet:
        nodes = [stack.enter_context(node()) for _ in range(2)]
        wait_until(lambda: len(fleet.nodes()) == 2 and fleet.leaders()[0].node, what="two nodes and a leader")
        end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        fleet.schedule("tick", "tick", Every("1h"), {"seconds": 0.05}, misfire="skip")
        begun = fleet.backfill("tick", end - TICKS * timedelta(hours=1), end)
        for _ in range(KILLS):
            before = len(lines(log, "end"))
            wait_until(lambda before=before: len(lines(log, "end")) >= before + 6, within=60, what="some more have run")
            living = {n.pid: n for n in nodes}
            wait_until(lambda living=living: fleet.leaders()[0].pid in living, within=30, what="a leader that lives")
            victim = living[fleet.leaders()[0].pid]
            victim.kill()
            killed[victim.pid] = time.time()
            nodes.remove(victim)
            nodes.append(stack.enter_context(node()))
        wait_until(lambda: fleet.get_backfill(begun.id).state == "done", within=90, what="the backfill's end")
        ended, runs = fleet.get_backfill(begun.id), fleet.runs(schedule="tick", limit=1000)
    assert (ended.created, ended.existing, ended.done, ended.failed) == (TICKS, 0, TICKS, 0)
    past = [run for run in runs if run.nominal_at is not None and run.nominal_at < end]
    assert [run.nominal_at for run in past[::-1]] == [end - n * timedelta(hours=1) for n in range(TICKS, 0, -1)]
    firsts: dict[str, float] = {}
    spans: list[tuple[float, float]] = []
    ends = {(line[2], line[4]): float(line[3]) for line in lines(log, "end")}
    for _, _, tick, start, pid in lines(log, "start"):
        firsts.setdefault(tick, float(start))
        spans.append((float(start), ends.get((tick, pid), killed.get(int(pid), float("inf")))))
    in_order = sorted(firsts, key=lambda tick: firsts[tick])
    assert in_order == sorted(firsts, key=float), "the order of the ticks"
    spans.sort()
    assert all(later >= end for (_, end), (later, _) in itertools.pairwise(spans)), "two at a time"
