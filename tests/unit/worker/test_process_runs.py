"""Handlers in child processes: arguments, results, contexts, errors (C76, C83)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleetcron.decide.describe import describe_error
from fleetcron.errors import ConfigError, Discard, LeaseLost, PayloadError, RetryAfter, Snooze
from fleetcron.handlers import Handler
from fleetcron.worker.executors.errors import HandlerExit
from fleetcron.worker.executors.process import ProcessExecutor
from fleetcron.worker.executors.remote import RemoteError
from tests.unit.worker import process_jobs as jobs
from tests.unit.worker.support import MemoryServices, facts


@pytest.fixture
def services() -> MemoryServices:
    return MemoryServices()


@pytest.fixture
async def processes(services: MemoryServices) -> AsyncIterator[ProcessExecutor]:
    executor = ProcessExecutor(services, slots=1, grace=2, max_error=10_000)
    yield executor
    await executor.close()


async def run(processes: ProcessExecutor, fn: Any, timeout: float | None = 30, **payload: Any) -> Any:
    handler = Handler(fn, fn.__name__)
    return await processes.run(handler, facts(), json.dumps(payload), timeout=timeout)


async def test_one_warm_child_runs_one_after_another(processes: ProcessExecutor) -> None:
    assert await run(processes, jobs.add, a=1, b=2) == 3
    assert await run(processes, jobs.add, a=2**64) == 2**64 + 1
    assert await run(processes, jobs.Holder.inside, a=4) == 8
    pids = {await run(processes, jobs.pid, timeout=timeout) for timeout in (None, 5, None)}
    assert len(pids) == 1
    assert pids != {os.getpid()}


@pytest.mark.parametrize("value", ["é\u2028😀", [1, None, {"a": [True]}], "x" * 200_000, -0.5, "\x00" * 3])
async def test_values_arrive_and_return(processes: ProcessExecutor, value: Any) -> None:
    assert await run(processes, jobs.echo, value=value) == (value if value != "\x00" * 3 else "\\x00" * 3)


async def test_results_are_made_storable_in_the_child(processes: ProcessExecutor) -> None:
    result = await run(processes, jobs.odd_result)
    assert result["k\\x00"] == "v\\x00"
    assert (result["nan"], result["bytes"], result["lone"]) == ("NaN", "b'\\xff'", "\\ud800")
    big = await run(processes, jobs.big_result, size=3_000_000)
    assert big.endswith(" bytes]")
    assert len(big) < 256 * 1024


async def test_a_child_is_a_clean_place(processes: ProcessExecutor) -> None:
    import sys

    assert await run(processes, jobs.environment) == [None, sys.argv, True]


async def test_the_context_of_a_child(processes: ProcessExecutor) -> None:
    tick = datetime(2026, 1, 31, 2, tzinfo=UTC)
    told = facts(schedule="s", nominal_at=tick, interval=(tick - timedelta(days=1), tick))
    result = await processes.run(Handler(jobs.facts, "job"), told, "{}", timeout=30)
    assert result == [7, "job:s:2026-01-31T02:00:00Z", 99, 1, "2026-01-31T02:00:00Z", False]
    assert await run(processes, jobs.by_result) == {"set": True}


async def test_steps_and_progress_over_the_pipe(
    processes: ProcessExecutor, services: MemoryServices, tmp_path: Path
) -> None:
    path = tmp_path / "calls"
    for _ in range(2):
        assert await run(processes, jobs.steps, path=str(path)) == {"n": 2**64}
    assert path.read_text() == "x"
    assert services.reports == [(7, 1, 3, "first")] * 2
    assert await run(processes, jobs.steps_from_threads) == list(range(8))
    assert await run(processes, jobs.add_async, a=1) == [2, 41]


async def test_a_lost_lease_is_raised_where_the_step_is(
    processes: ProcessExecutor, services: MemoryServices, tmp_path: Path
) -> None:
    services.lost.add(7)
    with pytest.raises(LeaseLost, match="run 7 is somebody else's"):
        await run(processes, jobs.steps, path=str(tmp_path / "calls"))


async def test_a_transaction_in_a_child_says_what_to_use(processes: ProcessExecutor) -> None:
    with pytest.raises(ConfigError, match="executor='async'"):
        await run(processes, jobs.in_transaction)


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("which", "kinds", "message"),
    [
        ("two", (jobs.TwoArguments,), "a"),
        ("socket", (jobs.HoldsSocket,), "holds a socket"),
        ("str", (jobs.BrokenStr,), "its message could not be read"),
        ("reduce", (jobs.BrokenReduce,), "r"),
        ("slots", (jobs.WithSlots, OSError), "[Errno 1] two"),
        ("deeper", (jobs.Deeper, jobs.TwoArguments, KeyError, LookupError), "'a'"),
        ("local", (jobs.BrokenReduce,), "in a function"),
        ("nul", (ValueError,), "a\\x00b \\ud800"),
        ("group", (RemoteError,), "several (2 sub-exceptions)"),
        ("stop", (StopIteration,), "7"),
        ("unicode", (UnicodeDecodeError, ValueError), "'utf-8' codec can't decode byte 0xff in position 0: bad"),
    ],
)
async def test_errors_arrive_as_text_and_are_of_their_classes(
    processes: ProcessExecutor, which: str, kinds: tuple[type[Exception], ...], message: str
) -> None:
    caught = await error_of(processes, jobs.raise_odd, which=which)
    assert isinstance(caught, RemoteError)
    assert all(isinstance(caught, kind) for kind in kinds)
    assert str(caught) == message
    assert "in raise_odd" in caught.traceback
    line, trace = describe_error(caught, 20_000)
    assert line == f"{caught.type_name}: {message}"
    assert "in raise_odd" in trace
    assert await run(processes, jobs.add, a=1) == 2  # the child lives


async def error_of(processes: ProcessExecutor, fn: Any, **payload: Any) -> Exception:
    try:
        await run(processes, fn, **payload)
    except Exception as error:
        # StopIteration cannot leave a coroutine: Python itself wraps it, for async handlers as well
        return error.__cause__ if type(error) is RuntimeError and isinstance(error.__cause__, RemoteError) else error
    pytest.fail("nothing was raised")


async def test_names_of_classes_that_the_worker_does_not_know(processes: ProcessExecutor) -> None:
    caught = await error_of(processes, jobs.raise_odd, which="local")
    assert isinstance(caught, RemoteError)
    assert caught.mro_names[:2] == (
        "tests.unit.worker.process_jobs.raise_odd.<locals>.Local",
        "tests.unit.worker.process_jobs.BrokenReduce",
    )
    assert not isinstance(caught, ValueError)


async def test_long_errors_are_cut(processes: ProcessExecutor) -> None:
    caught = await error_of(processes, jobs.raise_odd, which="long")
    assert isinstance(caught, RemoteError)
    assert len(str(caught)) <= 10_000
    assert len(caught.traceback) <= 10_000
    assert str(caught).endswith(" bytes]")


async def test_chains_are_in_the_traceback(processes: ProcessExecutor) -> None:
    caught = await error_of(processes, jobs.raise_chain)
    assert isinstance(caught, RemoteError)
    assert "KeyError: 'first'" in caught.traceback
    assert "ValueError: second" in caught.traceback


async def test_outcomes_that_handlers_choose_arrive_exactly(processes: ProcessExecutor) -> None:
    retry = await error_of(processes, jobs.raise_odd, which="retry")
    snooze = await error_of(processes, jobs.raise_odd, which="snooze")
    discard = await error_of(processes, jobs.raise_odd, which="discard")
    assert type(retry) is RetryAfter
    assert (retry.delay, str(retry)) == (timedelta(seconds=90), "not yet")
    assert type(snooze) is Snooze
    assert (snooze.delay, str(snooze)) == (timedelta(hours=1), "snoozed for 1h")
    assert type(discard) is Discard
    assert str(discard) == "no use"


@pytest.mark.parametrize("which", ["interrupt", "cancelled"])
async def test_what_is_no_exception_ends_the_run_only(processes: ProcessExecutor, which: str) -> None:
    before = await run(processes, jobs.pid)
    with pytest.raises(HandlerExit):
        await run(processes, jobs.raise_odd, which=which)
    with pytest.raises(HandlerExit, match=r"exit\(3\)"):
        await run(processes, jobs.call_exit, code=3)
    assert await run(processes, jobs.pid) == before


async def test_a_payload_that_does_not_fit(processes: ProcessExecutor) -> None:
    with pytest.raises(PayloadError) as refused:
        await run(processes, jobs.add, a="x")
    assert refused.value.path == "$.a"


async def test_functions_that_no_child_can_import(processes: ProcessExecutor) -> None:
    def local() -> None: ...

    def gone() -> None: ...

    gone.__qualname__ = "gone"
    for fn in (local, lambda: None, jobs.Holder().__init__):  # type: ignore[misc]
        with pytest.raises(ConfigError, match="top level of a module"):
            await processes.run(Handler(fn, "job"), facts(), "{}", timeout=None)
    with pytest.raises(ConfigError, match="found no function"):
        await processes.run(Handler(gone, "job"), facts(), "{}", timeout=None)


async def test_slots_bound_the_children(services: MemoryServices) -> None:
    processes = ProcessExecutor(services, slots=2)
    pids = await asyncio.gather(*(run(processes, jobs.pid) for _ in range(8)))
    assert len(set(pids)) <= 2
    await processes.close()
