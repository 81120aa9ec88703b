"""kill -9 of workers and leaders under a running fleet: no tick lost, none twice, nothing late beyond what a lease allows."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetcron import Fleet
from tests.support.processes import NodeProcess, started, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

APP = "tests.crash.app:fleet"
SECONDS = float(os.environ.get("CRASH_SECONDS", "21"))  # three kills; `make soak` sets 120
LATE = float(os.environ.get("CRASH_LATE", "1"))  # 50 ms by `make soak`, on a machine that does nothing else
LEASE = 15.0


def lines(log: Path, word: str) -> list[list[str]]:
    return (
        [line.split() for line in log.read_text().splitlines() if line.startswith(f"{word} ")] if log.exists() else []
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "crash.log"


def make_nodes(
    url: str, folder: Path, log: Path, *args: str, env: dict[str, str] | None = None
) -> Iterator[NodeProcess]:
    for n in itertools.count(1):
        yield NodeProcess(url, APP, folder, *args, env={"CRASH_LOG": str(log), **(env or {})}, name=f"node{n}")


def leader_pid(fleet: Any) -> int | None:
    pid: int | None = fleet.leaders()[0].pid
    return pid


def ticks_between(begin: float, end: float) -> set[float]:
    """The ticks of a job every second."""
    return {float(t) for t in range(int(begin) + 1, int(end) + 1)}


def ran(log: Path) -> set[float]:
    """The ticks that have started."""
    return {float(tick[1]) for tick in lines(log, "tick")}


def check_ticks(url: str, log: Path, begin: float, end: float, late: float) -> None:
    """Every tick in [begin, end] ran, none was created twice, none started more than `late` seconds late."""
    ticks = lines(log, "tick")
    named = ticks_between(begin, end)
    first_start: dict[float, float] = {}
    for tick in ticks:
        nominal, start = float(tick[1]), float(tick[2])
        first_start[nominal] = min(start, first_start.get(nominal, start))
    assert not named - set(first_start), f"ticks that never ran: {sorted(named - set(first_start))}"
    worst = max(first_start[t] - t for t in named)
    print(f"{len(named)} ticks, the latest start {worst * 1000:.1f} ms late")
    assert worst <= late, f"a tick started {worst:.3f} s late"
    assert min(first_start[t] - t for t in named) >= 0, "a tick started early"
    with Fleet(url).blocking as fleet:
        created = Counter(run.nominal_at for run in fleet.runs(schedule="tick", limit=10_000))
    assert max(created.values()) == 1, "a tick was created twice"


def test_leader_and_a_worker_killed_every_7_s(pg_url: str, tmp_path: Path, log: Path) -> None:
    """Two nodes with all roles, a job every second; the leader and one worker are killed -9 in turn and replaced."""
    nodes = make_nodes(pg_url, tmp_path, log, env={"CRASH_POLICY": "fire_all"})
    live = [next(nodes), next(nodes)]
    try:
        for node in live:
            node.start()
        wait_until(lambda: lines(log, "tick"), what="the first tick")
        begin = time.time()
        with Fleet(pg_url).blocking as fleet:
            kill_leader = True
            while time.time() < begin + SECONDS:
                time.sleep(7)
                leader = leader_pid(fleet)
                victim = next((n for n in live if (n.pid == leader) == kill_leader), live[0])
                kill_leader = not kill_leader
                victim.kill()
                live[live.index(victim)] = next(nodes).start()
            end = time.time()
            pids = [node.pid for node in live]
            wait_until(lambda: leader_pid(fleet) in pids, what="a leader that lives")
            time.sleep(2)  # in which it does what it has found undone
            # What the last victim held comes back within a lease.
            wait_until(lambda: ran(log) >= ticks_between(begin, end), within=LEASE + 3, what="every tick having run")
    finally:
        for node in live:
            node.kill()
    check_ticks(pg_url, log, begin, end, LEASE + 1)


def test_leader_alone_killed_starts_stay_within_50_ms(pg_url: str, tmp_path: Path, log: Path) -> None:
    """Scheduler nodes and a worker node apart; the leader is killed -9 every 7 s."""
    env = {"CRASH_POLICY": "fire_all"}
    schedulers = make_nodes(pg_url, tmp_path, log, "--role", "scheduler", env=env)
    worker = NodeProcess(pg_url, APP, tmp_path, "--role", "worker", env={"CRASH_LOG": str(log), **env}, name="worker")
    live = [next(schedulers), next(schedulers)]
    with started(worker):
        try:
            for node in live:
                node.start()
            wait_until(lambda: len(lines(log, "tick")) > 2, what="the first ticks")
            begin = time.time()
            with Fleet(pg_url).blocking as fleet:
                kills = 0
                while time.time() < begin + SECONDS:
                    time.sleep(7)
                    leader = leader_pid(fleet)
                    for i, node in enumerate(live):
                        if node.pid == leader:
                            node.kill()
                            kills += 1
                            live[i] = next(schedulers).start()
            end = time.time() - 1
            assert kills >= 2
        finally:
            for node in live:
                node.kill()
    check_ticks(pg_url, log, begin, end, LATE)


def test_killed_worker_s_job_runs_again_within_a_lease(pg_url: str, tmp_path: Path, log: Path) -> None:
    """kill -9 of a worker with a 2 s job at default settings: running again elsewhere within 15 s (the aim is 2 s)."""
    env = {"CRASH_LOG": str(log)}
    one = NodeProcess(pg_url, APP, tmp_path, env=env, name="one")
    two = NodeProcess(pg_url, APP, tmp_path, env=env, name="two")
    with started(one, two), Fleet(pg_url).blocking as fleet:
        wait_until(lambda: len(fleet.nodes()) == 2, what="two nodes")
        time.sleep(LEASE + 1)  # a rescuer acts once it has watched the database for a lease time
        run = fleet.submit("slow", {"n": 1})
        wait_until(lambda: lines(log, "start"), what="the start")
        victim = one if int(lines(log, "start")[0][3]) == one.pid else two
        victim.kill()
        killed = time.time()
        wait_until(lambda: len(lines(log, "start")) > 1, within=20, what="the second start")
        again = float(lines(log, "start")[1][2]) - killed
        done = run.wait("10s")
        assert done.state == "succeeded"
        assert [a.state for a in done.attempts] == ["lost", "succeeded"]
        assert again <= 15, f"running again after {again:.1f} s"
        print(f"running again after {again:.2f} s")


def test_C75_poison_runs_end_in_the_dead_letters(pg_url: str, tmp_path: Path, log: Path) -> None:
    """A job that kills its worker: after max_attempts dead workers it is a dead letter, and other work goes on."""
    nodes = make_nodes(pg_url, tmp_path, log, "--lease", "3s", "--drain", "1s")
    live = [next(nodes), next(nodes)]
    try:
        for node in live:
            node.start()
        with Fleet(pg_url).blocking as fleet:
            wait_until(lambda: len(fleet.nodes()) == 2, what="two nodes")
            run = fleet.submit("poison", {"n": 1})
            deadline = time.time() + 60
            while time.time() < deadline and not fleet.dead_letters():
                for i, node in enumerate(live):
                    if not node.alive():
                        live[i] = next(nodes).start()
                time.sleep(0.2)
            letters = fleet.dead_letters()
            assert [d.run_id for d in letters] == [run.id]
            assert letters[0].error == "worker died"
            assert [a.state for a in run.refresh().attempts] == ["lost"] * 3
            assert fleet.submit("quick", {"n": 2}).wait("20s").state == "succeeded"
    finally:
        for node in live:
            node.kill()
