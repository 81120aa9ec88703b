"""Lanes: what has something waiting."""

from __future__ import annotations

from datetime import timedelta

from fleetcron.store.protocol import Lane, Store
from tests.conformance.kit import START, Clock, at, hand, insert, insert_one, new, second


async def test_there_are_none_in_the_beginning(store: Store, clock: Clock) -> None:
    clock.advance(7)
    for queues in (None, ["default"], []):
        look = await store.lanes(queues)
        assert (look.now, look.lanes) == (at(7), [])


async def test_each_lane_comes_with_its_first_due_time(store: Store) -> None:
    await insert(
        store,
        new(queue="b", delay=second(9)),
        new(queue="b", delay=second(3)),
        new(queue="b", tenant="acme", delay=second(5)),
        new(queue="a", priority=9),
        new(queue="a", priority=0, delay=second(1)),
        new(queue="c", delay=timedelta(hours=1)),  # in the timetable: no lane yet
    )
    expected = [
        Lane("a", 0, "", at(1)),
        Lane("a", 9, "", START),
        Lane("b", 5, "", at(3)),
        Lane("b", 5, "acme", at(5)),
    ]
    for queues, answer in ((None, expected), (["a", "b", "nothing"], expected), (["b"], expected[2:]), ([], [])):
        look = await store.lanes(queues)
        now, lanes = look.now, look.lanes
        assert (now, sorted(lanes, key=lambda lane: (lane.queue, lane.priority, lane.tenant))) == (START, answer)


async def test_a_lane_goes_with_its_last_run(store: Store) -> None:
    worker = await hand(store)
    await insert(store, new(), new(delay=second(5)))
    await worker.claim()
    assert (await store.lanes(None)).lanes == [Lane("default", 5, "", at(5))]
    await worker.claim(ahead=10)
    assert (await store.lanes(None)).lanes == []


async def test_a_queue_asked_for_twice_is_there_once(store: Store) -> None:
    await insert_one(store)
    assert len((await store.lanes(["default", "default"])).lanes) == 1


async def test_the_lanes_of_other_queues_do_not_use_up_the_limit(store: Store) -> None:
    """A worker for one queue must find its lanes however many tenants another queue has."""
    await insert(
        store, *(new(queue="crowded", tenant=f"t{i:03}") for i in range(60)), new(queue="quiet"), new(queue="a")
    )
    lanes = (await store.lanes(["quiet", "a"], limit=50)).lanes
    assert {lane.queue for lane in lanes} == {"a", "quiet"}


async def test_the_limit_bounds_the_answer(store: Store) -> None:
    await insert(store, *(new(tenant=f"t{i:02}") for i in range(60)))
    lanes = (await store.lanes(None, limit=50)).lanes
    assert len({lane.tenant for lane in lanes}) == 50


async def test_more_tenants_than_the_limit_hide_no_other_queue_and_no_other_priority(store: Store) -> None:
    await insert(
        store,
        *(new(queue="a", tenant=f"t{i:02}") for i in range(60)),
        new(queue="a", priority=9),
        new(queue="b", priority=0),
    )
    lanes = (await store.lanes(None, limit=50)).lanes
    assert len(lanes) == 50
    assert {(lane.queue, lane.priority) for lane in lanes} == {("a", 5), ("a", 9), ("b", 0)}


async def test_lanes_that_have_nothing_waiting_do_not_use_up_the_limit(store: Store) -> None:
    """Tenants come and go; those of the past must not hide those of today."""
    worker = await hand(store)
    await insert(store, *(new(tenant=f"t{i:02}") for i in range(60)))
    await worker.complete(*await worker.claim())
    await insert_one(store, tenant="z")
    lanes = (await store.lanes(None, limit=50)).lanes
    assert [lane.tenant for lane in lanes] == ["z"]


async def test_a_look_starts_where_the_caller_knows_that_nothing_is_left(store: Store) -> None:
    """For each lane that it knows; the others are looked at from their beginning. Only where looking costs something: SQLite ignores it."""
    await insert(
        store,
        new(due_at=at(-9)),
        new(due_at=at(-5)),
        new(tenant="acme", due_at=at(-7)),
        new(tenant="old", due_at=at(-7)),
    )
    known = [Lane("default", 5, "", at(-5)), Lane("default", 5, "old", at(-6)), Lane("default", 5, "gone", at(-6))]
    lanes = (await store.lanes(None, known=known)).lanes
    found = {lane.tenant: lane.first_due for lane in lanes}
    if store.kind == "postgres":
        assert found == {"": at(-5), "acme": at(-7)}
    else:
        assert found == {"": at(-9), "acme": at(-7), "old": at(-7)}


async def test_a_look_begins_behind_the_tenant_whose_turn_it_was(store: Store) -> None:
    """Round and round, whatever the limit: each lane once in a round, and each pair of queue and priority on its own."""
    tenants = ["", *(f"t{i:02}" for i in range(20))]
    await insert(store, *(new(tenant=tenant) for tenant in tenants), new(queue="other"), new(queue="other", tenant="x"))
    every = [Lane("default", 5, tenant, at(0)) for tenant in tenants]

    async def look(begin: dict[tuple[str, int], str], limit: int) -> dict[str, list[str]]:
        lanes = (await store.lanes(None, limit=limit, begin=begin)).lanes
        assert len(lanes) <= limit
        return {queue: [lane.tenant for lane in lanes if lane.queue == queue] for queue in ("default", "other")}

    assert await look({}, 100) == {"default": [lane.tenant for lane in every], "other": ["", "x"]}
    assert await look({("default", 5): "t03"}, 100) == {"default": [*tenants[5:], *tenants[:5]], "other": ["", "x"]}
    assert await look({("default", 5): "t03"}, 6) == {"default": tenants[5:9], "other": ["", "x"]}
    assert await look({("default", 5): "t18", ("other", 5): ""}, 8) == {
        "default": ["t19", *tenants[:5]],
        "other": ["x", ""],
    }
    assert await look({("default", 5): "t19", ("other", 5): "x"}, 5) == {"default": tenants[:3], "other": ["", "x"]}
    assert await look({("default", 5): "gone", ("other", 5): "w"}, 4) == {"default": ["t00", "t01"], "other": ["x", ""]}
    assert await look({("none", 5): "a", ("default", 9): "b"}, 4) == {"default": tenants[:2], "other": ["", "x"]}
