"""The number of shards is changed while the fleet works, as docs/explanation/leadership.md says: schedulers are restarted one by one."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import pytest

from fleetcron import Every, Fleet
from fleetcron.store.protocol import Store
from tests.conformance.kit import job, look, put, schedule
from tests.crash.test_kills import check_ticks
from tests.election.support import Member, members, until
from tests.support.processes import NodeProcess, started, wait_until


async def load(store: Store, stop: asyncio.Event) -> int:
    """Schedules that tick each second are made, and edited, five times a second: there is always something to write. Returns how many."""
    for number in itertools.count():
        if stop.is_set():
            return number
        await put(store, schedule(f"s{number}", Every(1), misfire="fire_all"))
        if number > 3:
            await put(store, schedule(f"s{number - 3}", Every(1), misfire="fire_all", payload='{"edited": 1}'))
        await asyncio.sleep(0.2)
    raise AssertionError


@pytest.mark.timeout(120)
async def test_from_one_to_four_to_two_shards_under_load(store_url: str) -> None:
    """Every schedule has each tick once, from its first to the horizon, and lies on the shard that its id falls to."""
    crew = [Member(store_url, shrink_after=1.0) for _ in range(2)]
    came: list[Member] = []
    stop = asyncio.Event()

    async def change(shards: int) -> None:
        for place in range(2):
            await crew[place].stop()
            crew[place] = await track(Member(store_url, shards=shards, shrink_after=1.0)).start()
        await until(
            lambda: counted([came[0], *crew]) == list(range(shards)), within=20, what=f"{shards} shards being led"
        )

    def track(member: Member) -> Member:
        came.append(member)
        return member

    async with members(track(Member(store_url, shrink_after=1.0)), *crew, later=came):
        store = came[0].store  # it stays to the end, and leads its part of all shards
        await store.put_jobs([job()])
        loading = asyncio.create_task(load(store, stop))
        await until(lambda: counted([came[0], *crew]) == [0])
        for shards in (4, 2):
            await change(shards)
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        stop.set()
        made = await loading
        await written(store, made, 2)


def counted(crew: list[Member]) -> list[int]:
    return sorted(shard for member in crew for shard in member.scheduler.leading())


async def written(store: Store, made: int, shards: int) -> None:
    """Every schedule's ticks are all there, once each, and it is on its shard."""
    give_up_at = time.monotonic() + 15
    while True:
        place = await look(store, f"SELECT count(*) FROM schedule WHERE shard = id % {shards}")
        (ticks,) = await look(
            store, "SELECT count(DISTINCT schedule), count(*), count(DISTINCT schedule || nominal_at) FROM run"
        )
        if place == [(made,)] and ticks[0] == made:
            break
        assert time.monotonic() < give_up_at, f"{place} of {made} on their shards, {ticks[0]} with ticks"
        await asyncio.sleep(0.1)
    assert ticks[1] == ticks[2], "a tick twice"
    second = "1000000" if store.kind == "sqlite" else "interval '1 second'"
    gaps = await look(
        store,
        f"""SELECT schedule, nominal_at FROM (
            SELECT schedule, nominal_at, lead(nominal_at) OVER (PARTITION BY schedule ORDER BY nominal_at) AS following FROM run) t
            WHERE following <> nominal_at + {second}""",
    )
    assert gaps == [], "a tick lost"
    assert (await store.leaders())[-1].shard == shards - 1


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(400)
def test_real_nodes_from_one_to_four_to_two_shards(pg_url: str, tmp_path: Path) -> None:
    """With the minute that a fleet waits before it goes down, and several ends of minutes, at which ticks are written."""
    log = tmp_path / "ticks.log"
    env = {"CRASH_LOG": str(log), "CRASH_POLICY": "fire_all"}
    numbers = itertools.count()

    def scheduler(shards: int) -> NodeProcess:
        words = ["--role", "scheduler", "--shards", str(shards), "--election-ttl", "2s"]
        return NodeProcess(pg_url, "tests.crash.app:fleet", tmp_path, *words, env=env, name=f"n{next(numbers)}")

    worker = NodeProcess(pg_url, "tests.crash.app:fleet", tmp_path, "--role", "worker", env=env, name="worker")
    nodes = [scheduler(1), scheduler(1)]
    with started(worker, *nodes), Fleet(pg_url).blocking as fleet:

        def led(shards: int) -> bool:
            """So many shards there are, and each has a leader."""
            return [leader.shard for leader in fleet.leaders() if leader.node] == list(range(shards)) == shard_ids()

        def shard_ids() -> list[int]:
            return [leader.shard for leader in fleet.leaders()]

        def restart(shards: int) -> None:
            for place in range(2):
                assert nodes[place].stop() == 0
                nodes[place] = scheduler(shards).start()
                wait_until(lambda at=place: "is ready" in nodes[at].log.read_text(), what="the new node")

        try:
            wait_until(lambda: len(log.read_text().splitlines()) > 3 if log.exists() else False, what="the first ticks")
            begin = time.time()
            restart(4)
            wait_until(lambda: led(4), what="four shards")
            print("four shards after", round(time.time() - begin, 1), "s")
            time.sleep(70)
            restart(2)
            wait_until(lambda: led(2), within=90, what="two shards")
            print("two shards after", round(time.time() - begin, 1), "s")
            time.sleep(65)
            end = time.time() - 0.5
        finally:
            for one in nodes:
                one.kill()
        worker.stop()
        check_ticks(pg_url, log, begin, end, late=0.5)
