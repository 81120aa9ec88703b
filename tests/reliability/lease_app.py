"""The app of the lease cases' real nodes. Every start and end is one line in $LEASE_LOG, appended in one write."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

from fleetcron import Context, Fleet

APP = "tests.reliability.lease_app:fleet"
fleet = Fleet()
_LOG = os.open(os.environ.get("LEASE_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Noted(NamedTuple):
    """A line: what happened to which run, in which process, when (the host's clock)."""

    what: str
    n: int
    attempt: int
    pid: int
    at: float


def note(what: str, n: int, attempt: int) -> None:
    os.write(_LOG, f"{what} {n} {attempt} {os.getpid()} {time.time():.4f}\n".encode())


def noted(log: Path, what: str) -> list[Noted]:
    """The lines with this word so far."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [Noted(w, int(n), int(attempt), int(pid), float(at)) for w, n, attempt, pid, at in lines if w == what]


async def _work(ctx: Context, n: int, first: float, again: float, stubborn: bool = False) -> str:
    """The first attempt takes `first` seconds, another one `again`. A stubborn one that is stopped returns as if it had not been."""
    note("start", n, ctx.attempt)
    try:
        await asyncio.sleep(first if ctx.attempt == 1 else again)
    except asyncio.CancelledError:
        note("stopped", n, ctx.attempt)
        if not stubborn:
            raise
    else:
        note("end", n, ctx.attempt)
    return f"attempt {ctx.attempt}"


@fleet.job("work")
async def work(ctx: Context, n: int, first: float = 0.0, again: float = 0.0, stubborn: bool = False) -> str:
    return await _work(ctx, n, first, again, stubborn)


@fleet.job("single", max_running=1)
async def single(ctx: Context, n: int, first: float = 0.0, again: float = 0.0) -> str:
    return await _work(ctx, n, first, again)
