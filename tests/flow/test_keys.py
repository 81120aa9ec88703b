"""The cases of the class dedup (reliability.md) through the public surface: C97, C98, C100."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal

import asyncpg
import pytest

from fleetcron import Fleet
from fleetcron.testing import VirtualFleet
from tests.flow.nodes import node

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
Scope = Literal["finished", "started"]


def shop(url: str) -> tuple[Fleet, list[int]]:
    """A fleet with a job, and what it was given."""
    fleet, seen = Fleet(url), list[int]()

    @fleet.job("work")
    async def work(n: int) -> None:
        seen.append(n)

    return fleet, seen


@pytest.mark.parametrize("scope", ["finished", "started"])
async def test_C97_how_long_a_key_holds(store_url: str, scope: Scope) -> None:
    """One is enqueued and starts; another is enqueued while it runs. By default it is no new one; with "started" it is, and overlaps."""
    fleet = Fleet(store_url)
    spans: list[tuple[int, str]] = []

    @fleet.job("work")
    async def work(n: int) -> None:
        spans.append((n, "start"))
        await vf.sleep("10s")
        spans.append((n, "end"))

    async with VirtualFleet(fleet, now=NOON, workers=2) as vf:
        first = await fleet.submit(work, {"n": 1}, key="K", key_scope=scope)
        waiting = await fleet.submit(work, {"n": 2}, key="K", key_scope=scope)
        assert (first.created, waiting.created, waiting.id) == (True, False, first.id), (
            "while it waits, in either scope"
        )
        await vf.advance("1s")
        again = await fleet.submit(work, {"n": 3}, key="K", key_scope=scope)
        assert again.created is (scope == "started")
        await vf.advance("30s")
        assert (await fleet.submit(work, {"n": 4}, key="K", key_scope=scope)).created, "it has finished"
        await vf.advance("30s")
    one, other = [(1, "start"), (1, "end")], [(4, "start"), (4, "end")]
    assert spans == (
        [*one, *other] if scope == "finished" else [(1, "start"), (3, "start"), (1, "end"), (3, "end"), *other]
    )


@pytest.mark.parametrize("rounds", [300, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_C97_no_overlap_in_races(store_url: str, rounds: int) -> None:
    """Submits race the starts and ends of the same keys, on two workers: two runs of one key are never under way at once."""
    keys, producers = 8, 4
    fleet = Fleet(store_url)
    running: Counter[int] = Counter()
    worst: Counter[int] = Counter()
    starts: Counter[int] = Counter()

    @fleet.job("work")
    async def work(key: int) -> None:
        running[key] += 1
        worst[key] = max(worst[key], running[key])
        starts[key] += 1
        await asyncio.sleep(0)
        running[key] -= 1

    numbers, created = count(), Counter[bool]()

    async def produce() -> None:
        while created[True] < rounds:
            key = next(numbers) % keys
            run = await fleet.submit(work, {"key": key}, key=f"k{key}")
            created[run.created] += 1

    async with fleet, node(fleet, 8), node(fleet.twin(), 8):
        async with asyncio.timeout(400):
            await asyncio.gather(*(produce() for _ in range(producers)))
            while starts.total() < created[True]:
                await asyncio.sleep(0.02)
    assert worst == dict.fromkeys(range(keys), 1)
    assert starts.total() == created[True] >= rounds
    assert created[False] > keys, "and some were refused"


@pytest.mark.parametrize("on_duplicate", ["keep", "replace"])
async def test_C98_the_first_or_the_last_of_a_burst(store_url: str, on_duplicate: Literal["keep", "replace"]) -> None:
    """Six in one second, with a window of five: one run, with the first payload or the last; each caller learns which happened."""
    fleet, seen = shop(store_url)
    async with VirtualFleet(fleet, now=NOON) as vf:
        answers = []
        for n in range(1, 7):
            answers.append(await fleet.submit("work", {"n": n}, key="doc-1", delay="5s", on_duplicate=on_duplicate))
            await vf.advance("0.2s")
        assert [answer.created for answer in answers] == [True] + [False] * 5
        assert [answer.replaced for answer in answers] == [False] + [on_duplicate == "replace"] * 5
        assert len({answer.id for answer in answers}) == 1
        # With "replace" each one also moves the due time: it is a debounce.
        assert answers[-1].due_at.timestamp() - NOON.timestamp() == (6.0 if on_duplicate == "replace" else 5.0)
        await vf.advance("4.5s")
        assert seen == ([] if on_duplicate == "replace" else [1])
        await vf.advance("10s")
    assert seen == ([6] if on_duplicate == "replace" else [1])


@pytest.mark.parametrize("scope", ["finished", "started"])
@pytest.mark.parametrize("on_duplicate", ["keep", "replace"])
async def test_C98_a_window_shorter_than_workers_look_ahead(
    store_url: str, on_duplicate: Literal["keep", "replace"], scope: Scope
) -> None:
    """A worker claims what is due within two seconds; a run with a key waits where it can be replaced until it is due, and starts on time."""
    fleet, seen = shop(store_url)
    async with VirtualFleet(fleet, now=NOON, ahead=2.0) as vf:
        answers = []
        for n in range(1, 7):
            options: dict[str, Any] = {"key_scope": scope, "on_duplicate": on_duplicate}
            answers.append(await fleet.submit("work", {"n": n}, key="doc-1", delay="1s", **options))
            await vf.advance("0.1s")
        assert [answer.created for answer in answers] == [True] + [False] * 5
        await vf.advance("0.3s" if on_duplicate == "keep" else "0.8s")
        assert seen == []
        await vf.advance("0.1s")
        assert seen == ([6] if on_duplicate == "replace" else [1])


async def test_C98_a_run_with_a_key_starts_on_time(store_url: str) -> None:
    """By a real worker, though it is not claimed ahead of its time: among others that are, and alone."""
    fleet = Fleet(store_url)
    late: dict[str, float] = {}

    @fleet.job("work")
    async def work(name: str, due: float) -> None:
        late[name] = time.time() - due

    async with fleet, node(fleet, 8):
        begin = time.time() + 3.0
        for n in range(8):
            at = datetime.fromtimestamp(begin + n * 0.25, UTC)
            payload = {"name": str(n), "due": at.timestamp()}
            await fleet.submit(work, payload, at=at, key=f"k{n}" if n % 3 else None)
        async with asyncio.timeout(30):
            while len(late) < 8:
                await asyncio.sleep(0.05)
    keyed, others = [[late[str(n)] for n in range(8) if bool(n % 3) is which] for which in (True, False)]
    assert min(keyed) >= 0
    assert sorted(keyed)[len(keyed) // 2] < 0.25, "not only at the next poll"
    assert min(others) >= 0


async def test_C98_what_comes_after_the_start_is_not_lost(store_url: str) -> None:
    """The scope "started" with "replace": an event during the run makes the next run, so the last event is always processed."""
    fleet = Fleet(store_url)
    seen: list[int] = []

    @fleet.job("work")
    async def work(n: int) -> None:
        seen.append(n)
        await vf.sleep("3s")

    async with VirtualFleet(fleet, now=NOON) as vf:
        created = []
        for n in range(10):
            run = await fleet.submit(
                work, {"n": n}, key="doc-1", key_scope="started", delay="2s", on_duplicate="replace"
            )
            created.append(run.created)
            await vf.advance("1s" if n % 4 else "3s")
        await vf.advance("10s")
    assert seen[-1] == 9
    assert len(seen) == sum(created) < 10


async def test_C100_a_period_counts_from_the_due_time_also_in_bulk(store_url: str) -> None:
    """A thousand in one call with 500 pairs of equal keys, a period of an hour, due in three hours."""
    fleet, seen = shop(store_url)
    keys = [f"k{i % 500}" for i in range(1000)]
    payloads = [{"n": i} for i in range(1000)]
    async with VirtualFleet(fleet, now=NOON, slots=600) as vf:

        async def created() -> int:
            many = await fleet.submit_many("work", payloads, keys=keys, key_scope="1h", delay=due)
            assert [len(many.ids), len(set(many.ids))] == [1000, 500]
            return sum(many.created)

        due = "3h"
        assert await created() == 500
        due = "0s"
        await vf.advance("2h59m")  # the period from the submit has passed twice
        assert await created() == 0
        await vf.advance("1h")  # due at 15:00, now 15:59
        assert sorted(seen) == list(range(500))
        assert await created() == 0
        await vf.advance("1m")
        assert await created() == 500


async def test_keys_inside_the_callers_transaction(pg_url: str) -> None:
    """What is rolled back holds no key; what commits holds it, and the caller is told inside the transaction already."""
    fleet, _ = shop(pg_url)
    async with fleet:
        connection = await asyncpg.connect(pg_url)
        try:
            undone = connection.transaction()
            await undone.start()
            assert (await fleet.submit("work", {"n": 1}, key="K", conn=connection)).created
            await undone.rollback()
            async with connection.transaction():
                first = await fleet.submit("work", {"n": 2}, key="K", conn=connection)
                many = await fleet.submit_many("work", [{"n": 3}, {"n": 4}], keys=["K", "L"], conn=connection)
            assert (first.created, many.created, many.ids[0]) == (True, [False, True], first.id)
            again = await fleet.submit("work", {"n": 5}, key="K", on_duplicate="replace")
            assert (again.created, again.id, (await fleet.run(first.id)).payload) == (False, first.id, {"n": 5})
        finally:
            await connection.close()


async def test_who_is_too_late_to_replace_is_told(store_url: str) -> None:
    """The run with the key has started: it stays as it is, alone and in bulk."""
    fleet = Fleet(store_url)

    @fleet.job("work")
    async def work(n: int) -> None:
        await vf.sleep("10s")

    async with VirtualFleet(fleet, now=NOON) as vf:
        await fleet.submit(work, {"n": 1}, key="K")
        await vf.advance("1s")
        late = await fleet.submit(work, {"n": 2}, key="K", on_duplicate="replace")
        assert (late.created, late.replaced, late.state, late.payload) == (False, False, "running", {"n": 1})
        many = await fleet.submit_many(
            work, [{"n": n} for n in range(3)], keys=["K", "L", "L"], delay="1h", on_duplicate="replace"
        )
        assert (many.created, many.replaced) == ([False, True, False], [False, False, True])
