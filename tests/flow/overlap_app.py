"""The app of test_overlap_kills: a job that is longer than its rhythm."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from fleetcron import Context, Fleet, Retry

fleet = Fleet()
_LOG = os.open(os.environ.get("FLOW_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what: str, nominal: float) -> None:
    os.write(_LOG, f"{what} {nominal:.3f} {time.time():.4f} {os.getpid()}\n".encode())


options: dict[str, Any] = {"overlap": os.environ.get("FLOW_OVERLAP", "allow")}


@fleet.job(
    "tick",
    every=f"{os.environ.get('FLOW_EVERY', '1')}s",
    misfire="fire_all",
    misfire_grace="10m",
    retry=Retry(max_attempts=10, backoff="0.1s"),
    **options,
)
async def tick(ctx: Context) -> None:
    assert ctx.nominal_at is not None
    nominal = ctx.nominal_at.timestamp()
    note("start", nominal)
    try:
        await asyncio.sleep(float(os.environ.get("FLOW_TAKES", "3")))
    except asyncio.CancelledError:
        note("stopped", nominal)
        raise
    note("end", nominal)
