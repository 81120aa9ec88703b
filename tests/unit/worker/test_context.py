"""What contexts tell, and what they ask of the engine."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fleetcron.errors import ConfigError, LeaseLost, PayloadError, StoreUnavailable
from fleetcron.model import Missed
from fleetcron.store.protocol import Claimed
from fleetcron.worker.context import MAX_STEP_BYTES, BlockingContext, Context, RunFacts, idempotency_key
from fleetcron.worker.executors.thread import LoopServices
from tests.unit.worker.support import MemoryServices, facts

TICK = datetime(2026, 1, 31, 2, tzinfo=UTC)


def claimed(**changes: Any) -> Claimed:
    known: dict[str, Any] = dict.fromkeys(Claimed.__struct_fields__)
    known |= {
        "run_id": 5,
        "fence": 6,
        "attempt": 2,
        "job": "report",
        "payload": "{}",
        "due": TICK.timestamp(),
        "late": False,
    }
    known |= {"tenant": "acme", "queue": "default", "priority": 5, "generation": 0, "deaths": 0}
    return Claimed(**(known | changes))


def test_a_context_tells_what_the_claim_knows() -> None:
    missed = Missed(first=TICK, last=TICK, count=1)
    interval = (TICK - timedelta(days=1), TICK)
    run = claimed(schedule="nightly", nominal_at=TICK, missed=missed, generation=2)
    told = RunFacts.of(run, max_attempts=4, interval=interval, deadline=TICK + timedelta(minutes=30))
    for context in (Context(told, MemoryServices()), BlockingContext(told, None)):  # type: ignore[arg-type]
        assert (context.run_id, context.job, context.schedule, context.tenant) == (5, "report", "nightly", "acme")
        assert (context.attempt, context.max_attempts, context.fence) == (2, 4, 6)
        assert (context.nominal_at, context.interval, context.missed) == (TICK, interval, missed)
        assert context.deadline == TICK + timedelta(minutes=30)
        assert context.idempotency_key == "report:nightly:2026-01-31T02:00:00Z:g2"
        assert "run 5 (report), attempt 2" in repr(context)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, "run:5"),
        ({"schedule": "s", "nominal_at": TICK}, "j:s:2026-01-31T02:00:00Z"),
        ({"schedule": "s", "nominal_at": TICK.astimezone(ZoneInfo("Asia/Kolkata"))}, "j:s:2026-01-31T02:00:00Z"),
        ({"schedule": "s", "nominal_at": TICK.replace(microsecond=5)}, "j:s:2026-01-31T02:00:00.000005Z"),
        ({"schedule": "s", "nominal_at": TICK, "generation": 1}, "j:s:2026-01-31T02:00:00Z:g1"),
    ],
)
def test_the_idempotency_key_names_the_work(changes: dict[str, Any], key: str) -> None:
    assert idempotency_key(**({"run_id": 5, "job": "j", "schedule": None, "nominal_at": None} | changes)) == key


def test_the_log_names_the_run(caplog: pytest.LogCaptureFixture) -> None:
    context = Context(facts(run_id=42, job="100%s"), MemoryServices())
    with caplog.at_level(logging.INFO):
        context.log.info("done %d of %s", 1, "3", extra={"mine": 1})
    (record,) = caplog.records
    assert record.getMessage() == "run 42: done 1 of 3"
    assert record.name == "fleetcron.jobs.100%s"
    assert (record.run_id, record.job, record.attempt, record.mine) == (42, "100%s", 1, 1)  # type: ignore[attr-defined]


async def test_cancelled_is_an_event_whenever_it_is_asked_for() -> None:
    early, late = Context(facts(), MemoryServices()), Context(facts(), MemoryServices())
    waiting = asyncio.create_task(early.cancelled.wait())
    await asyncio.sleep(0)
    assert not early.cancelled.is_set()
    early.stop()
    late.stop()
    assert await asyncio.wait_for(waiting, 5)
    assert late.cancelled.is_set()


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_step_is_done_once_over_all_attempts() -> None:
    services, calls = MemoryServices(), []

    async def pay(amount: int) -> tuple[str, int]:
        calls.append(amount)
        return "paid", amount

    first = await Context(facts(), services).step("pay", pay, 5)
    second = await Context(facts(attempt=2), services).step("pay", pay, 5)
    assert first == second == ["paid", 5]  # in JSON form the first time too: an attempt cannot see which it is
    assert calls == [5]
    assert await Context(facts(run_id=8), services).step("pay", pay, 6) == ["paid", 6]


async def test_a_step_may_be_a_plain_function_and_return_nothing() -> None:
    services, calls = MemoryServices(), []
    for _ in range(2):
        assert await Context(facts(), services).step("note", calls.append, "x") is None
    assert calls == ["x"]


async def test_a_step_that_fails_is_not_remembered() -> None:
    services = MemoryServices()
    with pytest.raises(ZeroDivisionError):
        await Context(facts(), services).step("divide", lambda: 1 // 0)
    assert await Context(facts(), services).step("divide", lambda: 1) == 1


@pytest.mark.parametrize("result", [{1, 2}, float("nan"), "x" * MAX_STEP_BYTES])
async def test_a_step_result_without_json_form_is_refused(result: Any) -> None:
    services = MemoryServices()
    with pytest.raises(PayloadError):
        await Context(facts(), services).step("odd", lambda: result)
    assert services.steps == {}


@pytest.mark.parametrize("name", ["", "x" * 201, "nul\x00", "\ud800", 5])
async def test_a_step_needs_a_name_that_can_be_stored(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"ctx\.step"):
        await Context(facts(), MemoryServices()).step(name, lambda: 1)


async def test_a_step_after_the_lease_says_so() -> None:
    services = MemoryServices()
    services.lost.add(7)
    with pytest.raises(LeaseLost):
        await Context(facts(), services).step("late", lambda: 1)


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_progress_can_be_awaited_or_not() -> None:
    services = MemoryServices()
    context = Context(facts(), services)
    await context.progress(1, 3, "one\x00")
    context.progress(2, 3)
    await context.progress(3, 3)
    assert services.reports == [(7, 1, 3, "one\\x00"), (7, 3, 3, None)]  # 2 was overtaken before it could be kept


async def test_progress_never_fails_a_run(caplog: pytest.LogCaptureFixture) -> None:
    services = MemoryServices()
    services.failing = StoreUnavailable("the database is down")
    await Context(facts(), services).progress(1)
    assert "progress was not kept: the database is down" in caplog.text


# ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_transaction_completes_with_the_context_s_result() -> None:
    services = MemoryServices("postgres")
    context = Context(facts(), services)
    async with context.transaction() as connection:
        assert connection == "connection"
        context.result = {"rows": 3}
    assert services.committed == [{"rows": 3}]


async def test_a_transaction_on_sqlite_says_what_to_use() -> None:
    with pytest.raises(ConfigError, match=r"needs PostgreSQL.*ctx\.step"):
        Context(facts(), MemoryServices("sqlite")).transaction()


# ── blocking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_blocking_context_does_the_same_from_a_thread() -> None:
    services, calls = MemoryServices(), []

    def handler() -> list[Any]:
        context = BlockingContext(facts(), LoopServices(loop, services))
        context.progress(1, 2, "half")
        return [context.step("once", lambda x: calls.append(x) or x, 2**64) for _ in range(2)]

    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(handler) == [2**64, 2**64]
    assert calls == [2**64]
    assert services.reports == [(7, 1, 2, "half")]


async def test_a_blocking_context_says_what_it_cannot() -> None:
    context = BlockingContext(facts(), LoopServices(asyncio.get_running_loop(), MemoryServices()))
    with pytest.raises(ConfigError, match="async def"):
        context.transaction()
    with pytest.raises(ConfigError, match="async handler"):
        await asyncio.to_thread(context.step, "s", asyncio.sleep, 0)


async def test_a_blocking_context_stops_its_handler_at_the_next_call() -> None:
    context = BlockingContext(facts(), LoopServices(asyncio.get_running_loop(), MemoryServices()))
    context.cancelled.set()
    for call in (lambda: context.progress(1), lambda: context.step("s", lambda: 1)):
        with pytest.raises(LeaseLost, match="asked to stop"):
            await asyncio.to_thread(call)


async def test_a_blocking_context_survives_a_store_that_is_down(caplog: pytest.LogCaptureFixture) -> None:
    services = MemoryServices()
    services.failing = StoreUnavailable("down")
    context = BlockingContext(facts(), LoopServices(asyncio.get_running_loop(), services))
    await asyncio.to_thread(context.progress, 1)
    assert "progress was not kept" in caplog.text


def test_a_blocking_context_of_a_worker_that_has_ended() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(LeaseLost, match="ended"):
        BlockingContext(facts(), LoopServices(loop, MemoryServices())).step("s", lambda: 1)
