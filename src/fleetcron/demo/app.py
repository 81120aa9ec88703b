"""The demo's app: a nightly report the way you might write yours, and two small jobs for the other acts.

A night lasts five seconds here and brings a month of weather. Start a node of it with

    fleetcron --app fleetcron.demo.app:fleet run
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from fleetcron import Context, Discard, Fleet, Retry
from fleetcron.demo import pipeline
from fleetcron.demo.witness import witnessed

FOLDER = Path(os.environ.get("FLEETCRON_DEMO_FOLDER", "fleetcron-demo"))
POISON_ATTEMPTS = 3

fleet = Fleet()


@fleet.job(
    "nightly-report",
    cron="*/5 * * * * *",
    misfire="fire_all",
    timeout="30s",
    retry=Retry(max_attempts=5, backoff="0.5s"),
)
async def nightly_report(ctx: Context, month: str | None = None) -> dict[str, Any]:
    """extract → aggregate → report, one month a night.

    A step that is done is remembered with the run: whoever takes over from a dead worker goes on behind it. Publishing
    twice does no harm, because every attempt writes the same text to the same file. And an attempt that has lost its
    lease cannot overwrite what a newer one wrote, because its fence is lower.
    """
    if month is None and ctx.nominal_at is not None:
        month = pipeline.month_of(ctx.nominal_at)
    if month is None:
        raise Discard('no night and no month: submit me with {"month": "2013-07"}')
    with witnessed(ctx, FOLDER):
        extracted = await ctx.step("extract", pipeline.extract, month)
        await ctx.progress(1, 3, "extracted")
        summary = await ctx.step("aggregate", pipeline.aggregate, extracted["days"])
        await ctx.progress(2, 3, "aggregated")
        report = FOLDER / "reports" / f"{month}.txt"
        pipeline.publish(report, pipeline.render(month, summary, ctx.interval), ctx.fence)
    return {"month": month, "report": report.name, "extracted_by": extracted["pid"], "published_by": os.getpid()}


@fleet.job("tally")
async def tally(ctx: Context) -> dict[str, Any]:
    """What a misfire policy decided, as its run is told: how many ticks were judged away in favour of this one."""
    with witnessed(ctx, FOLDER):
        return {"missed": ctx.missed.count if ctx.missed else 0}


@fleet.job("poison", retry=Retry(max_attempts=POISON_ATTEMPTS, backoff="0.5s"))
async def poison() -> None:
    """Kills the worker that runs it: a crash in C code, or the OOM killer."""
    os.kill(os.getpid(), signal.SIGKILL)
