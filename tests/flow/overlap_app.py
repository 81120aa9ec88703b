"""The app of test_overlap_kills: a job that is longer than its rhythm. Every start and end is one line in $FLOW_LOG."""

from __future__ import annotations

import asyncio
import os
import time

from fleetcron import Context, Fleet, Retry

fleet = Fleet()
_LOG = os.open(os.environ.get("FLOW_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what: str, ctx: Context) -> None:
    assert ctx.nominal_at is not None
    os.write(_LOG, f"{what} {ctx.schedule} {ctx.nominal_at.timestamp():.3f} {time.time():.4f} {os.getpid()}\n".encode())


@fleet.job("tick", retry=Retry(max_attempts=10, backoff="0.1s"))
async def tick(ctx: Context, seconds: float) -> None:
    note("start", ctx)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("stopped", ctx)
        raise
    note("end", ctx)
