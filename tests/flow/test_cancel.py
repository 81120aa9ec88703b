"""The cases of the class cancel (reliability.md) with real workers: C101, C102, C104. The store's part of them is in tests/conformance."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetcron import Fleet, Retry, Run
from fleetcron.testing import VirtualFleet
from tests.crash.test_kills import APP, lines
from tests.flow.nodes import node
from tests.support.processes import NodeProcess, started, wait_until

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
HEARTBEAT, SLACK = 2.0, 1.5
"""Seconds. The handlers take 60: whoever hears of a cancel at the next claim only is far too late."""
FINAL = {"succeeded", "failed", "cancelled"}


BATCH = 100


@pytest.mark.parametrize("rounds", [300, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_C101_a_final_state_never_changes(store_url: str, rounds: int) -> None:
    """cancel() against claims, ends, failures and retries: a legal end that fits the answer and stays; after an accepted cancel no attempt
    begins."""
    fleet = Fleet(store_url, lease="6s", heartbeat="0.2s")
    chance = random.Random(101)
    answers: dict[int, str] = {}
    tried: dict[int, int] = {}  # attempts when the answer had come, the one under way among them
    ended: dict[int, Run] = {}

    @fleet.job("mixed", retry=Retry(max_attempts=3, backoff="0.02s", jitter="none"))
    async def mixed(n: int) -> None:
        await asyncio.sleep(chance.random() * 0.02)
        if n % 3 == 0:
            raise RuntimeError("again")

    async def cancel(run_id: int) -> None:
        await asyncio.sleep(chance.random() * 0.4)
        answers[run_id] = await fleet.cancel(run_id)
        tried[run_id] = len((await fleet.run(run_id)).attempts)

    async with fleet, node(fleet, 20):
        for begin in range(0, rounds, BATCH):
            ids = (await fleet.submit_many(mixed, [{"n": n} for n in range(begin, begin + BATCH)])).ids
            await asyncio.gather(*map(cancel, ids))
            for run_id in ids:
                ended[run_id] = await (await fleet.run(run_id)).wait("20s")
        assert {run.state for run in ended.values()} <= {"succeeded", "failed", "cancelled"}
        assert {answers[i] for i in ended if ended[i].state == "cancelled"} == {"cancelled", "asked"}
        assert set(answers.values()) == {"cancelled", "asked", "too late"}
        assert all(ended[i].state == "cancelled" for i, answer in answers.items() if answer == "cancelled")
        again = [i for i, answer in answers.items() if answer == "asked" and len(ended[i].attempts) > tried[i]]
        assert again == [], "no retry after an accepted cancel"
        for run_id, run in ended.items():
            now = await fleet.run(run_id)
            assert (now.state, now.finished_at, len(now.attempts)) == (run.state, run.finished_at, len(run.attempts))


@pytest.mark.crash
@pytest.mark.parametrize("draining", [False, True], ids=["busy", "draining"])
@pytest.mark.parametrize("polling", [False, True], ids=["notify", "polling"])
def test_C102_a_cancel_is_seen_within_a_heartbeat(
    store_url: str, tmp_path: Path, draining: bool, polling: bool
) -> None:
    """All slots busy, with and without wake-ups, and while the worker drains after SIGTERM."""
    log = tmp_path / "crash.log"
    env = {"CRASH_LOG": str(log), "FLEETCRON_PGBOUNCER": str(int(polling))}  # which turns LISTEN off
    args = ("--role", "worker", "--concurrency", "3", "--lease", "6s", "--heartbeat", f"{HEARTBEAT}s")
    worker = NodeProcess(store_url, APP, tmp_path, *args, env=env)
    with started(worker), Fleet(store_url, pgbouncer=polling).blocking as fleet:
        wait_until(lambda: any(job.name == "slow" for job in fleet.jobs()), what="the job is registered")
        ids = fleet.submit_many("slow", [{"n": n, "seconds": 60} for n in range(3)]).ids
        wait_until(lambda: len(lines(log, "start")) == 3, what="three handlers")
        if draining:
            os.kill(worker.pid, signal.SIGTERM)
            wait_until(lambda: "draining" in worker.log.read_text(), what="the drain")
        asked = time.time()
        assert [fleet.cancel(i) for i in ids] == ["asked"] * 3
        wait_until(lambda: len(lines(log, "stopped")) == 3, what="three handlers have been stopped")
        assert max(float(line[2]) for line in lines(log, "stopped")) - asked <= HEARTBEAT + SLACK
        assert [fleet.run(i).wait("10s").state for i in ids] == ["cancelled"] * 3


async def test_C104_deploys_cost_a_long_job_no_attempt(store_url: str) -> None:
    """Four deploys in the middle of a long job of three attempts: handed back at once each time, and done by the fifth worker."""
    fleet = Fleet(store_url)

    @fleet.job("long", retry=Retry(max_attempts=3))
    async def long() -> None:
        await vf.sleep("60s")

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit("long")
        for _ in range(4):
            await vf.advance("5s")
            vf.stop_worker()
            vf.start_worker()
        await vf.advance("2m")
        await run.refresh()
        assert run.state == "succeeded"
        assert [a.state for a in run.attempts] == ["released"] * 4 + ["succeeded"]
        assert run.attempt == 1


async def test_what_has_not_started_by_its_deadline_expires_and_is_recorded(store_url: str) -> None:
    fleet = Fleet(store_url)
    starts: list[datetime] = []

    @fleet.job("work", every="1m", misfire="fire_all", start_deadline="90s")
    async def work() -> None:
        starts.append(vf.now)

    async with VirtualFleet(fleet, now=NOON) as vf:
        await fleet.set_queue("default", paused=True)
        run = await fleet.submit("work", start_deadline="10s")
        await vf.advance("3m40s")
        await fleet.set_queue("default", paused=False)
        await vf.advance("1s")
        assert (await run.refresh()).state == "expired"
        assert starts == [NOON + timedelta(minutes=3, seconds=40)], (
            "the tick of 12:03; those of 12:01 and 12:02 are too late"
        )
        assert {miss.reason for miss in vf.misses} == {"expired"}
        assert sum(miss.count for miss in vf.misses) == 2
