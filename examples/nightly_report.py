"""A nightly report: a cron schedule in a time zone, in steps that are done once over all attempts.

    fleetcron --app nightly_report:fleet run

Kill it in the middle (kill -9) and start it again: the night goes on with the step at which it was stopped. Stop it for some nights: each
of them is made up for, oldest first, one at a time, and knows which day it is for.
"""

from __future__ import annotations

import asyncio
import csv
import os
from datetime import datetime
from pathlib import Path

from fleetcron import Context, Fleet, Retry

fleet = Fleet()

FOLDER = Path(os.environ.get("REPORT_FOLDER", "reports"))
CRON = os.environ.get("REPORT_CRON", "0 2 * * *")


@fleet.job(
    "nightly-report",
    cron=CRON,
    tz="Asia/Kolkata",
    misfire="fire_all",  # each night's data needs its own report
    catchup_limit=31,
    overlap="queue_all",  # after an outage: one after the other
    timeout="30m",
    retry=Retry(max_attempts=5, backoff="10s"),
)
async def nightly_report(ctx: Context) -> dict[str, str]:
    night = ctx.nominal_at or datetime.now().astimezone()  # started by hand: there is no tick
    rows = await ctx.step("extract", extract, night.isoformat())
    total = await ctx.step("aggregate", sum, rows)
    file = await ctx.step("write", write, night.isoformat(), total)
    ctx.log.info("the report of %s is %s", night.date(), file)
    return {"file": file}


async def extract(night: str) -> list[int]:
    """Stands for a slow query over one night's data."""
    await asyncio.sleep(0.2)
    return [len(night), 1, 2, 3]


def write(night: str, total: int) -> str:
    """Under a name that tells the night, and in one move: written twice it is the same file."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{night.replace(':', '')}.csv"
    draft = file.with_suffix(".draft")
    with draft.open("w", newline="") as out:
        csv.writer(out).writerows([["night", "total"], [night, total]])
    draft.replace(file)
    return str(file)
