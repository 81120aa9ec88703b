"""The cases C60 and C61 of the class lease (reliability.md): claims that are not executed, and links that break at any statement."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from fleetcron import Context, Cron, Fleet
from fleetcron.node import Node, NodeOptions
from fleetcron.testing import VirtualFleet
from tests.conformance.kit import broken
from tests.reliability.support import NOON, POLICIES, Notebook, at, check_account, ticks
from tests.support.cutter import Cutter

ROOT = Path(__file__).resolve().parents[2]
HOURLY = Cron("0 * * * *")


@pytest.mark.parametrize(
    "crashed_at",
    [
        pytest.param(at(12, 0, 30), id="with-nothing-due-for-an-hour"),
        pytest.param(at(12, 59, 59), id="with-the-tick-claimed-ahead"),
    ],
)
async def test_C60_a_crash_keeps_no_claim_on_a_later_tick(store_url: str, crashed_at: object) -> None:
    """Nothing is held that is not run: whoever is there when a tick is due has it, again and again."""
    async with Notebook(store_url, ahead=2.0, lease="15s") as book:
        await book.each_policy(HOURLY)
        await book.vf.advance(crashed_at)  # type: ignore[arg-type]
        book.vf.crash_worker()
        book.vf.start_worker()
        await book.vf.advance(at(15, 30))
        for policy in POLICIES:
            assert book.nominals(policy) == [at(13), at(14), at(15)]
            late = at(13, 0, 14.1) if crashed_at == at(12, 59, 59) else at(13)
            assert book.of(policy)[0].started_at <= late, "within the lease of the one that had it"
            assert [s.attempt for s in book.of(policy)] == [1, 1, 1]
            assert [s.late for s in book.of(policy)[1:]] == [False, False]
        assert book.vf.misses == []


async def test_C60_a_crash_in_the_middle_of_a_tick_does_not_touch_the_next_one(store_url: str) -> None:
    fleet = Fleet(store_url, lease="15s")
    starts = []

    @fleet.job("work", cron="0 * * * *", misfire="skip")
    async def work(ctx: Context) -> None:
        starts.append((ctx.nominal_at, ctx.attempt))
        await vf.sleep("10m")

    async with VirtualFleet(fleet, now=NOON) as vf:
        await vf.advance(at(13, 5))
        vf.crash_worker()
        vf.start_worker()
        await vf.advance(at(15, 30))
        assert starts == [(at(13), 1), (at(13), 2), (at(14), 1), (at(15), 1)]
        assert {run.state for run in vf.runs} == {"succeeded"}


async def test_C61_a_link_that_is_cut_at_any_statement_strands_nothing(pg_url: str) -> None:
    """Every connection is reset before a statement reaches the server, or after it was carried out and before the answer, at another one
    each time. Every tick runs and ends, none twice over, and the schedule goes on."""
    async with Cutter.to(pg_url) as link:
        fleet = Fleet(link.url, lease="6s", heartbeat="0.5s", election_ttl="2s")
        starts: Counter[object] = Counter()

        @fleet.job("tick", every="0.2s", misfire="fire_all")
        async def tick(ctx: Context) -> None:
            starts[ctx.nominal_at] += 1

        node = Node(fleet, NodeOptions(slots=4))
        ready = asyncio.Event()
        running = asyncio.create_task(node.run(ready.set))
        try:
            await asyncio.wait_for(ready.wait(), 20)
            async with asyncio.timeout(20):
                while not starts:
                    await asyncio.sleep(0.02)
            link.cut_at(itertools.cycle(range(3, 23)))
            async with asyncio.timeout(30):
                while link.cuts < 40:
                    await asyncio.sleep(0.02)
            link.cut_at(iter(()))
            before = len(starts)
            async with asyncio.timeout(20):
                while len(starts) < before + 5:
                    await asyncio.sleep(0.02)
        finally:
            node.stop()
            await asyncio.wait_for(running, 30)
    async with Fleet(pg_url) as direct:
        runs = [run async for run in direct.iter_runs(job="tick")]
        assert await broken(direct.store) == []
        assert await direct.misses() == []
        began = [run for run in runs if run.state != "scheduled"]
        assert {run.state for run in began} <= {"succeeded", "ready"}
        nominals = sorted(run.nominal_at for run in runs if run.nominal_at is not None)
        assert all(b - a == timedelta(seconds=0.2) for a, b in itertools.pairwise(nominals)), "no tick is missing"
        assert len(set(nominals)) == len(runs)


async def test_C61_a_process_that_dies_at_any_write_strands_nothing(tmp_path: Path) -> None:
    """On SQLite the link is the process itself: it is killed before each statement that writes, in the middle of its transaction and right
    before and after each commit, at another one each time; the next process goes on with the file."""
    url = f"sqlite:///{tmp_path / 'fleet.db'}"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "tests.reliability.killed_at", url],
        cwd=ROOT, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    deaths = int(done.stdout)
    assert deaths > 20
    async with Notebook(url, now=NOON + timedelta(minutes=2 * deaths + 2)) as book:
        await book.vf.advance("3m")
        named = ticks(Cron("* * * * *"), NOON, book.vf.now)
        check_account(named, book.vf.runs, book.vf.misses)
        assert {run.state for run in book.vf.runs} == {"succeeded"}
        assert await broken(book.fleet.store) == []
        assert book.nominals()[-3:] == named[-3:]


async def write(url: str, statement: str) -> None:
    """Change a table behind fleetcron's back. The statement must suit both databases."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute(statement)
            connection.commit()
        return
    connection = await asyncpg.connect(url, server_settings={"search_path": "fleetcron"})
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_C61_a_schedule_without_an_open_run_is_not_left_behind(store_url: str) -> None:
    """Somebody has lost its ticks (deleted by hand, or by a fault): `next_at` alone brings the next ones, and no flag keeps them back."""
    async with Notebook(store_url) as book:
        trigger = await book.minutely(misfire="fire_all")
        await book.vf.advance(at(12, 5))
        lost = {
            run.nominal_at
            for run in await book.fleet.runs(until=at(13))
            if run.nominal_at and run.nominal_at > at(12, 5)
        }
        for table in ("ready", "timetable", "lease", "dedup"):
            await write(store_url, f"DELETE FROM {table}")
        await write(store_url, "DELETE FROM run WHERE state = 'open'")
        await book.vf.advance(at(12, 10))
        assert book.nominals() == [tick for tick in ticks(trigger, NOON, at(12, 10)) if tick not in lost]
        assert lost < set(ticks(trigger, NOON, at(12, 8)))
