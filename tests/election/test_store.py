"""What the stores promise to schedulers that share shards: beats, campaigns and renewals of many, more and fewer shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from fleetcron.store.factory import make_store
from fleetcron.store.protocol import Fire, Store, Tick
from fleetcron.triggers import Every
from tests.conformance.kit import Clock, at, info, job, judge, lead, put, schedule, the_schedule

TTL = timedelta(seconds=5)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(store_url: str, clock: Clock) -> AsyncIterator[Store]:
    one = make_store(store_url, clock=clock, pool_size=6)
    await one.open()
    yield one
    await one.close()


async def beat(
    store: Store, node: str, shards: int = 4, *, standing: bool = True
) -> tuple[dict[str, int], dict[int, str | None]]:
    crew = await store.scheduler_beat(node, shards, TTL, standing=standing)
    return crew.nodes, crew.leaders


async def test_a_beat_opens_shards_and_tells_who_lives(store: Store, clock: Clock) -> None:
    assert await beat(store, "a") == ({"a": 4}, dict.fromkeys(range(4)))
    clock.advance(1)
    assert (await beat(store, "b", 2))[0] == {"a": 4, "b": 2}
    clock.advance(4.5)
    assert (await beat(store, "b", 2))[0] == {"b": 2}, "a's time has run out"
    assert [leader.shard for leader in await store.leaders()] == [0, 1, 2, 3]


async def test_who_cannot_be_nominated_is_not_counted(store: Store) -> None:
    await beat(store, "b", 1)
    assert await beat(store, "a", 8, standing=False) == ({"b": 1}, {0: None}), "and opens nothing"
    assert (await beat(store, "b", 1))[0] == {"b": 1}
    await beat(store, "a", 1)
    assert (await beat(store, "b", 1))[0] == {"a": 1, "b": 1}
    await beat(store, "a", 1, standing=False)
    assert (await beat(store, "b", 1))[0] == {"b": 1}, "it signed off"


async def test_a_beat_tells_when_the_next_term_may_run_out(store: Store, clock: Clock) -> None:
    assert (await store.scheduler_beat("a", 4, TTL, standing=True)).remains is None
    await store.campaign_many([0, 1], info("a"), TTL, 2)
    clock.advance(1)
    await store.campaign_many([2], info("b"), TTL, 1)
    assert (await store.scheduler_beat("a", 4, TTL, standing=True)).remains == 5.0, "its own are its own business"
    assert (await store.scheduler_beat("b", 4, TTL, standing=True)).remains == 4.0


async def test_many_are_won_in_the_order_asked_for_and_up_to_the_limit(store: Store, clock: Clock) -> None:
    await beat(store, "a", 8)
    assert await store.campaign_many([5, 3, 1, 7], info("a"), TTL, 3) == {5: 1, 3: 1, 1: 1}
    assert await store.campaign_many(range(8), info("b"), TTL, 100) == dict.fromkeys([0, 2, 4, 6, 7], 1)
    assert await store.campaign_many(range(8), info("c"), TTL, 100) == {}
    assert (await beat(store, "c", 8))[1] == {n: "a" if n in {1, 3, 5} else "b" for n in range(8)}
    clock.advance(5.1)
    assert await store.campaign_many([1, 2], info("c"), TTL, 100) == {1: 2, 2: 2}


async def test_C24_renewals_of_many_name_their_terms(store: Store, clock: Clock) -> None:
    """An older term, another node's shard and one whose time is past are refused, each for itself."""
    await beat(store, "a", 4)
    old = await store.campaign_many([0, 1], info("a"), TTL, 2)
    clock.advance(5.1)
    await store.campaign_many([0], info("b"), TTL, 1)
    new = await store.campaign_many([2], info("a"), TTL, 1)
    assert await store.renew_many("a", {**old, **new}, TTL) == {2}
    assert await store.renew_many("b", new, TTL) == set()
    assert await store.renew_many("b", {0: 1}, TTL) == set()
    clock.advance(4)
    assert await store.renew_many("a", new, TTL) == {2}
    clock.advance(4)
    assert await store.campaign_many([2], info("b"), TTL, 1) == {}, "it was renewed in between"
    assert await store.renew_many("a", {}, TTL) == set()


async def test_C23_each_shard_has_one_winner_however_many_ask(store: Store, clock: Clock) -> None:
    """Five nodes campaign at once for sixteen shards, again and again: judged by what the database says that it wrote."""
    await beat(store, "a", 16)
    for round_ in range(1, 31):
        answers = await asyncio.gather(*(store.campaign_many(range(16), info(f"n{i}"), TTL, 5) for i in range(5)))
        won = [shard for answer in answers for shard in answer]
        assert len(set(won)) == len(won)
        late = await store.campaign_many(range(16), info("late"), TTL, 16)  # what a skipped lock left over
        assert sorted([*won, *late]) == list(range(16))
        assert {term for answer in [*answers, late] for term in answer.values()} == {round_}
        clock.advance(5.1)


async def spread(store: Store, shards: int) -> list[int]:
    return [len(await store.due_schedules(shard, store.clock() + timedelta(hours=1), 1000)) for shard in range(shards)]  # type: ignore[misc]


async def test_more_and_fewer_shards(store: Store) -> None:
    await store.put_jobs([job()])
    await put(store, *(schedule(f"s{i}") for i in range(12)))
    assert await spread(store, 4) == [12, 0, 0, 0]
    await beat(store, "a", 4)
    await put(store, schedule("s12"), schedule("s13"), schedule("s14"), schedule("s15"))
    assert sum((await spread(store, 4))[1:]) == 3, "the database knows how many shards there are, whoever asks"
    assert await store.respread(5) == 5
    assert await store.respread() == 4
    assert await spread(store, 4) == [4, 4, 4, 4]
    assert await store.respread() == 0
    term = await lead(store, 3, "a")
    assert await store.close_shards(2) == 2
    assert not await store.renew(3, "a", term, TTL), "its term ended with the shard"
    assert await store.respread() == 8
    assert await spread(store, 4) == [8, 8, 0, 0]
    assert [leader.shard for leader in await store.leaders()] == [0, 1]
    assert await store.close_shards(2) == 0
    await beat(store, "a", 4)
    assert await store.campaign_many([3], info("b"), TTL, 1) == {3: term + 1}, "terms rise for ever"


async def test_a_fire_and_a_judgement_of_one_leader_do_not_wait_for_each_other(store: Store, clock: Clock) -> None:
    """Both hold the shard's row and want the schedule's: in one order."""
    await store.put_jobs([job()])
    await put(store, schedule(trigger=Every(1), misfire="fire_all"))
    term = await lead(store)
    for n in range(1, 40):
        read = await the_schedule(store)
        ticks = [Tick(at(n), at(n), at(n) + timedelta(minutes=1), None)]
        one = Fire(schedule_id=read.id, revision=read.revision, old_next=at(n), new_next=at(n + 1), ticks=ticks)
        fired, *_ = await asyncio.gather(
            store.fire(0, term, [one], tzdata="", until=at(n)),
            *(judge(store, "tick", leader=(0, term)) for _ in range(3)),
        )
        assert fired.led and fired.runs == 1
