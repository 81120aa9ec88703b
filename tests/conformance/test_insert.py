"""Inserting runs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from fleetcron.errors import StoreError
from fleetcron.model import State
from fleetcron.store.protocol import Store
from tests.conformance.kit import (
    AGES_AGO,
    HORIZON,
    START,
    Clock,
    at,
    hand,
    insert,
    insert_one,
    look,
    new,
    second,
    the_run,
)


async def test_a_run_comes_back_as_it_was_inserted(store: Store) -> None:
    payload = '{"id":1970670598291982290,"text":"ünï \\u2028 \'quoted\' %s $1 ?","nested":[null,true,1.5e300]}'
    run_id = await insert_one(
        store, payload=payload, queue="warteschlange ü", priority=9, tenant="acme", gate="g", key="k"
    )
    run = await the_run(store, run_id)
    assert run.payload == payload
    assert (run.id, run.job, run.queue, run.priority, run.tenant, run.key) == (
        run_id,
        "work",
        "warteschlange ü",
        9,
        "acme",
        "k",
    )
    assert (run.due_at, run.created_at, run.state, run.attempt) == (START, START, State.READY, 0)
    assert (run.schedule, run.nominal_at, run.started_at, run.finished_at) == (None, None, None, None)
    assert (run.result, run.error, run.worker, run.reason) == (None, None, None, None)


async def test_ids_rise_in_the_order_of_the_input(store: Store) -> None:
    delays = [3, 1, 2, None, 600, 0, 7200]
    answers = await store.insert(
        [new(delay=None if d is None else second(d), payload=f'{{"n":{i}}}') for i, d in enumerate(delays)]
    )
    ids = [a.id for a in answers]
    assert ids == sorted(set(ids))
    assert all(a.created for a in answers)
    assert [a.due_at for a in answers] == [START + second(d or 0) for d in delays]
    assert [(await the_run(store, i)).payload for i in ids] == [f'{{"n":{i}}}' for i in range(len(delays))]
    assert (await insert(store, new()))[0] > ids[-1]


async def test_nothing_in_nothing_out(store: Store) -> None:
    assert await store.insert([]) == []


async def test_an_absolute_time_wins_over_a_delay(store: Store) -> None:
    run_id = await insert_one(store, due_at=at(30), delay=timedelta(hours=1))
    assert (await the_run(store, run_id)).due_at == at(30)


async def test_an_instant_stays_the_same_instant_whatever_its_zone(store: Store) -> None:
    there = datetime(2031, 5, 6, 17, 45, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=45)))  # Kathmandu
    run = await the_run(store, await insert_one(store, due_at=there))
    assert run.due_at == there
    assert run.due_at.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("delay", "state", "hot"),
    [
        (timedelta(0), "ready", True),
        (timedelta(microseconds=1), "scheduled", True),
        (HORIZON - timedelta(microseconds=1), "scheduled", True),
        (HORIZON, "scheduled", False),
        (timedelta(days=400), "scheduled", False),  # case C49: past 24.8 and 49.7 days
    ],
)
async def test_what_is_due_within_the_horizon_is_hot(store: Store, delay: timedelta, state: str, hot: bool) -> None:
    run_id = await insert_one(store, delay=delay)
    assert str((await the_run(store, run_id)).state) == state
    look = await store.lanes(None)
    now, lanes = look.now, look.lanes
    assert now == START
    assert [lane.first_due for lane in lanes] == ([START + delay] if hot else [])


async def test_the_horizon_is_the_end_of_the_next_minute(store: Store, clock: Clock) -> None:
    clock.advance(59)
    await insert(store, new(due_at=at(119)), new(due_at=at(120)))
    (first,) = (await store.lanes(None)).lanes
    assert first.first_due == at(119)
    assert await look(store, "SELECT count(*) FROM ready") == [(1,)]


async def test_what_is_long_past_due_is_ready(store: Store) -> None:
    run_id = await insert_one(store, due_at=AGES_AGO)
    assert (await the_run(store, run_id)).state == "ready"
    assert (await (await hand(store)).claim_one()).run_id == run_id


async def test_a_job_that_the_registry_does_not_know_is_refused_and_nothing_is_written(store: Store) -> None:
    for bad in (new("nobody"), new("nobody", delay=timedelta(days=1)), new("nobody", key="k")):
        with pytest.raises(StoreError):
            await store.insert([new(), new(key="mine"), bad, new()])
    for table in ("run", "ready", "timetable", "dedup"):
        assert await look(store, f"SELECT count(*) FROM {table}") == [(0,)], table


async def test_ten_thousand_runs_in_one_call(store: Store) -> None:
    answers = await store.insert([new(payload=f'{{"n":{i}}}', delay=second(i % 250)) for i in range(10_000)])
    ids = [a.id for a in answers]
    assert ids == list(range(ids[0], ids[0] + 10_000))
    assert await look(store, "SELECT count(*) FROM ready") == [(4_800,)]  # 120 of every 250 seconds
    assert (await the_run(store, ids[-1])).payload == '{"n":9999}'


async def test_a_start_deadline_counts_from_the_due_time(store: Store) -> None:
    await insert(store, new(start_deadline=second(30)), new(delay=second(10), start_deadline=second(30)), new())
    claimed = await (await hand(store)).claim(ahead=60)
    assert [run.expires_at for run in claimed] == [at(30), None, at(40)]


async def test_names_are_data(store: Store) -> None:
    strange = "'; DROP TABLE run; -- $1 ? %s \\ \" 名前 🕰"
    run_id = await insert_one(store, queue=strange, tenant=strange, key=strange, gate=strange)
    claimed = await (await hand(store)).claim_one()
    assert (claimed.run_id, claimed.queue, claimed.tenant, claimed.key, claimed.gate) == (run_id, *[strange] * 4)
