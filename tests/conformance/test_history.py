"""What the engine remembers: steps, progress, lists, counts, nodes; and what it forgets."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleetcron.store.protocol import NewRun, RunFilter, Store
from tests.conformance.kit import (
    LEASE,
    START,
    Clock,
    at,
    fired,
    hand,
    info,
    insert,
    insert_keyed,
    insert_one,
    lead,
    look,
    new,
    put,
    runs_of,
    schedule,
    second,
    the_run,
)

DAY = timedelta(days=1)


# Steps and progress
async def test_a_step_is_remembered_over_attempts(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    assert await store.step_get(run_id, "charge") is None
    assert await store.step_put(worker.id, run_id, run.fence, "charge", '{"id": 7}') is True
    assert await store.step_put(worker.id, run_id, run.fence, "ünï 'x'", "null") is True
    await worker.settle(run)
    assert await store.step_get(run_id, "charge") == '{"id": 7}'
    assert await store.step_get(run_id, "ünï 'x'") == "null"
    assert await store.step_get(run_id, "other") is None
    assert await store.step_get(run_id + 1, "charge") is None


async def test_progress_is_what_was_told_last(store: Store) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    assert await store.read_progress(run_id) is None
    assert await store.progress(worker.id, run_id, run.fence, 5, None, None) is True
    assert await store.read_progress(run_id) == (5, None, None)
    assert await store.progress(worker.id, run_id, run.fence, 2**40, 2**41, "hälfte") is True
    assert await store.read_progress(run_id) == (2**40, 2**41, "hälfte")
    await worker.complete(run)
    assert await store.read_progress(run_id) == (2**40, 2**41, "hälfte")


@pytest.mark.parametrize("how", ["ended", "rescued", "wrong fence", "wrong worker"])
async def test_an_owner_that_lost_its_lease_writes_no_steps_and_no_progress(store: Store, how: str) -> None:
    """Case C40: on every write path."""
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    owner, fence = worker.id, run.fence
    await store.step_put(owner, run_id, fence, "a", "1")
    await store.progress(owner, run_id, fence, 1, None, None)
    match how:
        case "ended":
            await worker.settle(run)
        case "rescued":
            await store.rescue([worker.id], expired=False)
        case "wrong fence":
            fence += 1
        case "wrong worker":
            owner += 1
    assert await store.step_put(owner, run_id, fence, "a", "2") is False
    assert await store.step_put(owner, run_id, fence, "b", "2") is False
    assert await store.progress(owner, run_id, fence, 2, None, None) is False
    assert await store.step_get(run_id, "a") == "1"
    assert await store.step_get(run_id, "b") is None
    assert await store.read_progress(run_id) == (1, None, None)


# Lists
async def test_runs_by_filter(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    await fired(store, await lead(store), "tick", at(60))
    (tick,) = await runs_of(store, "tick")
    ids = await insert(
        store,
        new(tenant="acme"),
        new("other", queue="q"),
        new(key="k"),
        new(delay=second(30)),
        new(due_at=at(-30)),
    )
    worker = await hand(store)
    (running,) = await worker.claim(queues=["q"])
    everything = [*ids[::-1], tick]

    async def found(**given: object) -> list[int]:
        return [run.id for run in await store.runs(RunFilter(**given))]  # type: ignore[arg-type]

    assert await found() == everything
    assert await found(limit=2) == everything[:2]
    assert await found(limit=2, after=everything[1]) == everything[2:4]
    assert await found(job="other") == [ids[1]]
    assert await found(schedule="tick") == [tick]
    assert await found(tenant="acme") == [ids[0]]
    assert await found(queue="q") == [ids[1]]
    assert await found(key="k") == [ids[2]]
    assert await found(since=START) == [i for i in everything if i != ids[4]]
    assert await found(until=START) == [ids[4]]
    assert await found(since=at(30), until=at(60)) == [ids[3]]
    assert await found(state="scheduled") == [ids[3], tick]
    assert await found(state="ready") == [ids[4], ids[2], ids[0]]
    assert await found(state="running") == [running.run_id]
    assert await found(state="running", tenant="acme") == []
    await worker.complete(running)
    assert await found(state="succeeded", job="other") == [ids[1]]
    assert await found(state="running") == []
    (record,) = await store.runs(RunFilter(key="k"))
    assert record == await the_run(store, ids[2])


async def test_a_run_that_does_not_exist(store: Store) -> None:
    assert await store.run(4711) is None
    assert await store.attempts(4711) == []
    assert await store.final([]) == []


async def test_final_names_those_that_have_ended_or_are_gone(store: Store) -> None:
    worker = await hand(store)
    ids = await insert(store, *(new() for _ in range(4)))
    runs = await worker.claim(3)
    await worker.complete(runs[0])
    await worker.settle(runs[1], "failed")
    assert sorted(await store.final([*ids, 4711])) == sorted([ids[0], ids[1], 4711])


async def test_a_running_attempt_is_shown(store: Store, clock: Clock) -> None:
    worker = await hand(store, host="alpha", pid=12)
    run_id = await insert_one(store)
    await worker.settle(await worker.claim_one())
    clock.advance(1)
    run = await worker.claim_one()
    shown = [(a.number, a.state, a.started_at, a.finished_at, a.worker, a.fence) for a in await store.attempts(run_id)]
    assert shown[1] == (2, "running", at(1), None, "alpha:12", run.fence)
    assert (await the_run(store, run_id)).worker == "alpha:12"


async def test_counts_by_queue(store: Store, clock: Clock) -> None:
    assert await store.counts() == {}
    worker = await hand(store)
    runs = [
        new(),
        new(),
        new(),
        new(gate="g"),
        new(gate="g"),
        new(delay=second(30)),
        new(delay=second(30)),
        new(delay=DAY),
    ]
    await insert(store, *runs, new(queue="q", delay=DAY))
    claimed = await worker.claim(5)
    await store.admit(worker.id, [run for run in claimed if run.gate])  # one passes, one waits
    await worker.settle(claimed[0], delay=second(50))
    await worker.settle(claimed[1], delay=DAY)
    assert len(await worker.claim(3, ahead=60, lanes=None)) == 3
    counts = await store.counts()
    assert set(counts) == {"default", "q"}
    found = counts["default"]
    assert (found.running, found.retrying, found.ready) == (2, 2, 1)
    assert found.scheduled == 3  # two of them prefetched, as one of those that are retried
    assert (counts["q"].scheduled, counts["q"].running) == (1, 0)


async def test_misses_newest_first(store: Store, clock: Clock) -> None:
    for name in ("a", "b", "a"):
        await put(store, schedule(name, paused=False))
        clock.advance(61)
        await store.remove_schedule(name, "ann")
    assert [m.schedule for m in await store.misses(None)] == ["a", "b", "a"]
    assert [m.schedule for m in await store.misses("a")] == ["a", "a"]
    assert len(await store.misses(None, limit=2)) == 2
    first, *_ = await store.misses("a")
    assert first.first > at(120)


# Nodes
async def test_nodes_show_who_lives(store: Store, clock: Clock) -> None:
    await store.node_beat(
        info("n1", host="alpha", pid=1, roles=("worker", "scheduler"), queues=("a", "b"), version="2", tzdata="t"),
        LEASE,
    )
    clock.advance(5)
    await store.node_beat(info("n2", pid=2), LEASE)
    for slots, pid in ((10, 21), (5, 20)):
        await store.start_worker(info("n1", slots=slots, pid=pid), LEASE)
    worker = await hand(store, "n1", slots=1, pid=22)
    await insert(store, new(), new())
    await worker.claim()
    n1, n2 = await store.nodes()
    assert (n1.node, n1.host, n1.pid, n1.roles, n1.queues) == ("n1", "alpha", 1, ["worker", "scheduler"], ["a", "b"])
    assert (n1.version, n1.tzdata, n1.started_at, n1.heartbeat_at) == ("2", "t", START, START)
    assert (n1.worker_pids, n1.slots, n1.running) == ([20, 21, 22], 16, 2)
    assert (n2.node, n2.queues, n2.worker_pids, n2.slots, n2.running) == ("n2", None, [], 0, 0)
    clock.advance(10)
    await store.node_beat(info("n1"), LEASE)
    clock.advance(5)
    (only,) = await store.nodes()
    assert (only.node, only.started_at, only.heartbeat_at) == ("n1", START, at(15))
    await store.node_end("n1")
    assert await store.nodes() == []


async def test_nodes_that_have_long_been_silent_are_forgotten(store: Store, clock: Clock) -> None:
    await store.node_beat(info("n1"), LEASE)
    await store.node_beat(info("n2"), LEASE)
    clock.advance(3600)
    await store.node_end("n2")
    assert await look(store, "SELECT node FROM node") == [("n1",)]
    clock.advance(16)
    await store.node_end("n2")
    assert await look(store, "SELECT node FROM node") == []


# Forgetting
async def test_pruning_forgets_what_ended_before_the_retention(store: Store, clock: Clock) -> None:
    worker = await hand(store, ttl=timedelta(days=100))
    ids = await insert(store, *(new() for _ in range(6)))
    runs = await worker.claim(4)
    await store.step_put(worker.id, ids[0], runs[0].fence, "a", "1")
    await store.progress(worker.id, ids[0], runs[0].fence, 1, None, None)
    await worker.settle(runs[1], "failed", dead=True)
    await worker.complete(runs[0])
    clock.advance(10 * 86_400)
    await worker.complete(runs[2])  # ended just now, though it is as old as the others
    clock.advance(1)
    assert await store.prune(timedelta(days=10), 0) == (2, ids[1])
    assert await store.prune(timedelta(days=10), 0) == (0, 0)
    assert [run.id for run in await store.runs(RunFilter())] == ids[:1:-1]
    for table in ("attempt", "step", "progress", "dead_letter"):
        assert await look(store, f"SELECT count(*) FROM {table}") == [(0,)], table


async def test_pruning_goes_on_from_where_it_stopped(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    ids = await insert(store, *(new() for _ in range(10)))
    await worker.complete(*await worker.claim())
    clock.advance(86_400 + 1)
    assert await store.prune(DAY, 0, 4) == (4, ids[3])
    assert await store.prune(DAY, ids[3], 4) == (4, ids[7])
    assert await store.prune(DAY, ids[7], 4) == (2, ids[9])


async def test_pruning_the_rest(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    clock.advance(61)
    await store.remove_schedule("tick", "ann")
    worker = await hand(store)
    await store.stop_worker(worker.id)
    living = await hand(store, ttl=timedelta(days=100))
    await insert_keyed(store, "short", key_scope=second(60))
    await insert_keyed(store, "long", key_scope=timedelta(days=30))
    await insert_keyed(store, "open")
    clock.advance(10 * 86_400)
    await store.prune_rest(timedelta(days=20))
    assert len(await store.misses(None)) == 1
    await store.prune_rest(DAY)
    assert await store.misses(None) == []
    assert await look(store, "SELECT id FROM session") == [(living.id,)]
    assert await look(store, "SELECT count(*) FROM audit") == [(0,)]
    assert await look(store, "SELECT key FROM dedup ORDER BY key") == [("long",), ("open",)]


async def test_an_id_is_never_given_twice(store: Store, clock: Clock) -> None:
    """Also when the newest runs have been pruned."""
    ids = await insert(store, *(new() for _ in range(3)))
    worker = await hand(store)
    await worker.complete(*await worker.claim())
    clock.advance(86_400 + 1)
    await store.prune(DAY, 0)
    assert await insert_one(store) > ids[-1]
    assert isinstance(new(), NewRun)
