"""A holder that wakes up too late does no harm."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetcron import Fleet
from tests.locks import resource
from tests.locks.resource import NAME

pytestmark = [pytest.mark.crash]

ROOT = Path(__file__).parents[2]
TTL = 1.5


@contextlib.contextmanager
def holder(url: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.locks.late", url, str(TTL)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


async def test_C40_a_frozen_holder_s_write_is_refused(store_url: str) -> None:
    """A has the lock; SIGSTOP for 2 × ttl; B takes over and writes; SIGCONT: A sees at once that it is late, writes all the same, and is
    refused; it cannot renew, and its release does not free B's lock."""
    async with Fleet(store_url) as fleet:
        await resource.prepare(store_url)
        books = await resource.connect(store_url)
        with holder(store_url) as a:
            fence = int(await asyncio.to_thread(line, a))
            assert a.stdin is not None
            a.send_signal(signal.SIGSTOP)
            a.stdin.write("go on\n")  # what it reads in the moment of its thaw
            a.stdin.flush()
            b = await fleet.lock(NAME, wait="20s").acquire()
            assert b.fence > fence
            assert await books.write(b.fence, 0)
            await asyncio.sleep(TTL)
            a.send_signal(signal.SIGCONT)
            assert json.loads(await asyncio.to_thread(line, a)) == {"lost": True, "wrote": False, "renewed": False}
        assert [held.fence for held in await fleet.locks()] == [b.fence]
        guards = {"highest"} if store_url.startswith("sqlite") else {"fence_ok", "highest"}
        assert set(await books.query("SELECT fence, by FROM refused")) == {(fence, guard) for guard in guards}
        assert await books.write(b.fence, 0)
        await b.release()
        await books.close()


async def test_a_blocked_process_that_lives_keeps_its_lock(pg_url: str) -> None:
    """The same without SIGSTOP: its event loop stands still for 2 × ttl, and nobody gets the lock."""
    async with Fleet(pg_url) as fleet:
        await resource.prepare(pg_url)
        with holder(pg_url) as a:
            fence = int(await asyncio.to_thread(line, a))
            await asyncio.sleep(2 * TTL)
            assert [held.fence for held in await fleet.locks()] == [fence]
            assert a.stdin is not None
            a.stdin.write("go on\n")
            a.stdin.flush()
            assert json.loads(await asyncio.to_thread(line, a)) == {"lost": False, "wrote": True, "renewed": True}
            assert a.wait(20) == 0
        assert await fleet.locks() == []
