"""Waits for the end of a run, when the fleet that waits is closed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import sys
from datetime import timedelta

import pytest

from fleetcron import Fleet, StoreError


async def test_closing_ends_the_waits_that_are_under_way(store_url: str) -> None:
    fleet = Fleet(store_url)

    @fleet.job("work")
    async def work() -> None: ...

    async with fleet:
        run = await fleet.submit(work, delay=timedelta(hours=1))
        waits = [asyncio.create_task(run.wait(timeout)) for timeout in (None, "1h")]
        await asyncio.sleep(0)  # they begin
    for wait in waits:
        with pytest.raises(StoreError, match="closed"):
            await asyncio.wait_for(wait, 5)


def test_closing_ends_the_waits_of_other_threads(store_url: str) -> None:
    fleet = Fleet(store_url)

    @fleet.job("work")
    async def work() -> None: ...

    with concurrent.futures.ThreadPoolExecutor() as threads:
        with fleet.blocking as blocking:
            wait = threads.submit(blocking.submit(work, delay="1h").wait)
            assert concurrent.futures.wait([wait], 0.2).not_done
        assert isinstance(wait.exception(timeout=10), StoreError)


def test_closing_ends_the_calls_of_other_threads(store_url: str) -> None:
    """Whatever they wait for: here, a lock that somebody else holds."""
    fleet = Fleet(store_url)
    with concurrent.futures.ThreadPoolExecutor() as threads, Fleet(store_url).blocking as other, other.lock("one"):
        with fleet.blocking as blocking:
            call = threads.submit(blocking.lock("one", wait="1h").acquire)
            assert concurrent.futures.wait([call], 0.2).not_done
        assert isinstance(call.exception(timeout=10), StoreError)


SCRIPT = """
import sys
from fleetcron import Fleet, WaitTimeout

fleet = Fleet(sys.argv[1])

@fleet.job("work")
async def work() -> None: ...

with fleet.blocking as blocking:
    try:
        blocking.submit(work).wait("200ms")
    except WaitTimeout:
        print("nobody works here")
"""


def test_a_script_that_has_waited_ends_without_a_word(store_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, store_url], capture_output=True, text=True, timeout=30, check=True
    )
    assert (done.stdout, done.stderr) == ("nobody works here\n", "")
