"""Handlers on the event loop and in threads."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from fleetcron.errors import ConfigError, LeaseLost, PayloadError
from fleetcron.handlers import Handler
from fleetcron.worker.context import BlockingContext, Context
from fleetcron.worker.executors.async_ import AsyncExecutor
from fleetcron.worker.executors.errors import HandlerExit, HandlerTimeout
from fleetcron.worker.executors.thread import ThreadExecutor
from tests.unit.worker.support import MemoryServices, facts, until

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


async def run_async(fn: Any, payload: str = "{}", timeout: float | None = None, **changes: Any) -> Any:
    return await AsyncExecutor(MemoryServices()).run(Handler(fn, "job"), facts(**changes), payload, timeout=timeout)


async def double(n: int) -> int:
    await asyncio.sleep(0)
    return n * 2


async def with_result(ctx: Context, value: Any = None) -> Any:
    ctx.result = "from the context"
    return value


@pytest.mark.parametrize("timeout", [None, 5.0])
async def test_async_handlers_return(timeout: float | None) -> None:
    assert await run_async(double, '{"n":21}', timeout) == 42
    assert await run_async(with_result, '{"value":0}', timeout) == 0
    assert await run_async(with_result, "{}", timeout) == "from the context"


async def test_async_handlers_run_in_the_caller_s_task() -> None:
    async def which() -> Any:
        return asyncio.current_task()

    assert await run_async(which) is asyncio.current_task()


async def test_what_an_async_handler_raises_comes_through_as_it_is() -> None:
    error = KeyError("x")

    async def fails() -> None:
        raise error

    with pytest.raises(KeyError) as raised:
        await run_async(fails, timeout=5)
    assert raised.value is error


async def test_a_payload_that_does_not_fit_never_starts_the_handler() -> None:
    with pytest.raises(PayloadError):
        await run_async(double, '{"n":"x"}')


async def test_an_async_handler_that_runs_too_long_is_cancelled() -> None:
    seen: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("cleaned up")

    with pytest.raises(HandlerTimeout, match=r"^timed out after 0\.05s$"):
        await run_async(slow, timeout=0.05)
    assert seen == ["cleaned up"]


async def test_a_timeout_of_the_handler_s_own_is_not_ours() -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError) as raised:
        await run_async(impatient, timeout=5)
    assert not isinstance(raised.value, HandlerTimeout)


@pytest.mark.parametrize("how", ["return", "raise"])
async def test_swallowing_the_timeout_does_not_undo_it(how: str) -> None:
    async def swallows() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if how == "raise":
                raise ValueError("while cleaning up") from None
        return "half done"

    with pytest.raises(HandlerTimeout):
        await run_async(swallows, timeout=0.05)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_an_async_handler_cannot_end_its_worker(error: BaseException) -> None:
    async def leaves() -> None:
        raise error

    for timeout in (None, 5.0):
        with pytest.raises(HandlerExit):
            await run_async(leaves, timeout=timeout)


async def test_cancelling_the_caller_cancels_the_handler() -> None:
    executor, started = AsyncExecutor(MemoryServices()), asyncio.Event()
    seen: list[Any] = []

    async def waits(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(ctx.cancelled.is_set())

    task = asyncio.create_task(executor.run(Handler(waits, "job"), facts(), "{}", timeout=30))
    await asyncio.wait_for(started.wait(), 5)
    executor.contexts[7].stop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [True]
    assert executor.contexts == {}
    await executor.close()


# ── threads ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def services() -> MemoryServices:
    return MemoryServices()


@pytest.fixture
async def threads(services: MemoryServices) -> Any:
    executor = ThreadExecutor(services, slots=2)
    yield executor
    await executor.close()


async def run_thread(threads: ThreadExecutor, fn: Any, payload: str = "{}") -> Any:
    return await threads.run(Handler(fn, "job"), facts(), payload, timeout=None)


async def test_thread_handlers_return_from_another_thread(threads: ThreadExecutor) -> None:
    def where(n: int) -> Any:
        return n, threading.get_ident(), VARIABLE.get()

    VARIABLE.set("copied")
    found = [await run_thread(threads, where, f'{{"n":{n}}}') for n in range(3)]
    assert [n for n, _, _ in found] == [0, 1, 2]
    assert len({ident for _, ident, _ in found} - {threading.get_ident()}) == 1  # one thread, used again
    assert {variable for _, _, variable in found} == {"copied"}


async def test_a_thread_handler_has_a_context(threads: ThreadExecutor, services: MemoryServices) -> None:
    def handler(ctx: BlockingContext) -> None:
        ctx.progress(1, 2)
        ctx.result = ctx.step("s", lambda: [ctx.run_id])

    assert await run_thread(threads, handler) == [7]
    assert services.steps == {(7, "s"): "[7]"}


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyError("x"), KeyError),
        (SystemExit(1), HandlerExit),
        (KeyboardInterrupt(), HandlerExit),
        (asyncio.CancelledError(), HandlerExit),
    ],
)
async def test_what_a_thread_handler_raises_comes_through(
    threads: ThreadExecutor, error: BaseException, raised: type[Exception]
) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(raised):
        await run_thread(threads, fails)
    assert await run_thread(threads, lambda: 1) == 1


async def test_a_timeout_on_a_thread_is_refused_not_ignored(threads: ThreadExecutor) -> None:
    with pytest.raises(ConfigError, match="executor='process'"):
        await threads.run(Handler(lambda: 1, "job"), facts(), "{}", timeout=5)


async def test_a_plain_function_that_returns_a_coroutine_is_told(threads: ThreadExecutor) -> None:
    with pytest.raises(ConfigError, match="async def"):
        await run_thread(threads, lambda: double(1))


async def test_cancelling_tells_the_thread_and_frees_the_slot(threads: ThreadExecutor) -> None:
    started, seen = threading.Event(), []

    def patient(ctx: BlockingContext) -> None:
        started.set()
        seen.append(ctx.cancelled.wait(30))
        try:
            ctx.progress(1)
        except LeaseLost as error:
            seen.append(error)

    for _ in range(3):  # more often than there are slots
        task = asyncio.create_task(run_thread(threads, patient))
        await until(started.is_set)
        started.clear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await asyncio.wait_for(run_thread(threads, lambda: "next"), 5) == "next"
    await until(lambda: len(seen) == 6)
    assert seen[0] is True
    assert isinstance(seen[1], LeaseLost)


async def test_no_more_threads_than_slots(threads: ThreadExecutor) -> None:
    lock, running, most = threading.Lock(), [0], [0]

    def counts() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1

    await asyncio.gather(*(run_thread(threads, counts) for _ in range(20)))
    assert most == [2]


async def test_close_tells_running_handlers_and_does_not_wait(threads: ThreadExecutor) -> None:
    told = threading.Event()

    def patient(ctx: BlockingContext) -> None:
        if ctx.cancelled.wait(30):
            told.set()

    task = asyncio.create_task(run_thread(threads, patient))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(threads.close(), 1)
    await until(told.is_set)
    await task


PROGRAM = """
import asyncio, time
from fleetcron.handlers import Handler
from fleetcron.worker.executors.thread import ThreadExecutor
async def main():
    threads = ThreadExecutor(None, slots=1)
    task = asyncio.create_task(threads.run(Handler(lambda: time.sleep(60), "job"), None, "{}", timeout=None))
    await asyncio.sleep(0.1)
    task.cancel()
    await threads.close()
asyncio.run(main())
"""


def test_a_thread_that_never_returns_does_not_keep_the_process() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=20)
