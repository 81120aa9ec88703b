"""The app that crash tests run in real nodes. Every start and end is one line in $CRASH_LOG, appended in one write."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from fleetcron import Context, Fleet, Retry

fleet = Fleet()
_LOG = os.open(os.environ.get("CRASH_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words: Any) -> None:
    os.write(_LOG, (" ".join(str(w) for w in words) + "\n").encode())


async def tick(ctx: Context) -> None:
    assert ctx.nominal_at is not None
    missed = ctx.missed.count if ctx.missed else 0
    note(ctx.schedule, f"{ctx.nominal_at.timestamp():.3f}", f"{time.time():.4f}", os.getpid(), ctx.attempt, missed)


# One policy: the job "tick". Several, in words: a job for each, "tick/<policy>", so that one outage shows what all of them do.
_POLICIES = os.environ.get("CRASH_POLICY", "").split()
for policy in _POLICIES:
    fleet.job(
        "tick" if len(_POLICIES) == 1 else f"tick/{policy}",
        every=os.environ.get("CRASH_EVERY", "1s"),
        misfire=policy,
        misfire_grace=os.environ.get("CRASH_GRACE", "60s"),
        queue=os.environ.get("CRASH_QUEUE", "default"),
    )(tick)


@fleet.job("slow")
async def slow(ctx: Context, n: int, seconds: float = 2.0) -> int:
    note("start", n, f"{time.time():.4f}", os.getpid(), ctx.attempt, ctx.fence)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("stopped", n, f"{time.time():.4f}", os.getpid(), ctx.attempt)
        raise
    note("end", n, f"{time.time():.4f}", os.getpid(), ctx.attempt)
    return n


@fleet.job("poison", retry=Retry(max_attempts=3, backoff="0.1s"))
async def poison(n: int) -> None:
    note("start", n, f"{time.time():.4f}", os.getpid(), 0)
    os.kill(os.getpid(), signal.SIGKILL)


@fleet.job("quick")
async def quick(n: int) -> None:
    note("quick", n, f"{time.time():.4f}", os.getpid())
