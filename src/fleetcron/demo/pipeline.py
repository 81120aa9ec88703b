"""The stages of the nightly report as plain functions: data in, data out, and one file at the end."""

from __future__ import annotations

import csv
import fcntl
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fleetcron.clock import sleep, to_us

SOURCE = Path(__file__).with_name("data") / "seattle-weather.csv"
NIGHT = timedelta(seconds=5)
FIRST_YEAR, MONTHS = 2012, 48
"""The file holds January 2012 to December 2015."""
PACE = 0.04
"""Seconds per day of data in `aggregate`: a month takes a second, and a run has a middle to be killed in."""

Day = dict[str, Any]


class StaleFence(Exception):
    """Somebody with a newer fence has written: this owner has lost its lease and does not know it yet."""


def month_of(night: datetime) -> str:
    """The month that a night stands for, such as "2013-07": the same for every attempt of that night."""
    year, month = divmod(to_us(night) // (NIGHT // timedelta(microseconds=1)) % MONTHS, 12)
    return f"{FIRST_YEAR + year}-{month + 1:02d}"


def extract(month: str) -> dict[str, Any]:
    """The clean days of one month, and the process that read them; implausible readings are dropped and counted.

    Raises ValueError for a month without any.
    """
    with SOURCE.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["date"].replace("/", "-").startswith(month)]
    days = [day for row in rows if (day := _clean(row)) is not None]
    if not days:
        last = FIRST_YEAR + MONTHS // 12 - 1
        raise ValueError(f"no readings for {month!r}: expected a month from {FIRST_YEAR}-01 to {last}-12")
    return {"days": days, "dropped": len(rows) - len(days), "pid": os.getpid()}


def _clean(row: dict[str, str]) -> Day | None:
    try:
        rain, high, low = float(row["precipitation"]), float(row["temp_max"]), float(row["temp_min"])
    except (KeyError, ValueError):
        return None
    if rain < 0 or low > high:
        return None
    return {"date": row["date"].replace("/", "-"), "rain": rain, "high": high, "low": low}


async def aggregate(days: list[Day]) -> dict[str, Any]:
    """The month in numbers, gathered day by day."""
    rain, wet, hottest, coldest = 0.0, 0, days[0], days[0]
    for day in days:
        rain += day["rain"]
        wet += day["rain"] > 0
        hottest = max(hottest, day, key=lambda d: d["high"])
        coldest = min(coldest, day, key=lambda d: d["low"])
        await sleep(PACE)
    return {"days": len(days), "wet": wet, "rain": round(rain, 1), "hottest": hottest, "coldest": coldest}


def render(month: str, summary: dict[str, Any], interval: tuple[datetime, datetime] | None) -> str:
    """The report as text. Nothing in it depends on the attempt: two attempts write the same."""
    hottest, coldest = summary["hottest"], summary["coldest"]
    covers = " to ".join(f"{moment:%H:%M:%S}" for moment in interval) if interval else "all there was before"
    return (
        f"Weather in Seattle, {month}\n"
        f"  {summary['days']} days, {summary['wet']} of them wet, {summary['rain']:.1f} mm of rain\n"
        f"  hottest {hottest['high']:.1f} °C on {hottest['date']}\n"
        f"  coldest {coldest['low']:.1f} °C on {coldest['date']}\n"
        f"  data interval: {covers}\n"
    )


def publish(report: Path, text: str, fence: int) -> None:
    """Write the report, once or again; raises StaleFence when a newer owner has written it.

    This is what a system outside of the database needs to be safe from owners that slept through their lease: it keeps
    the highest fence it has seen, and refuses a lower one. The lock makes looking and writing one act, the rename makes
    it all or nothing.
    """
    report.parent.mkdir(parents=True, exist_ok=True)
    with (report.parent / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if report.exists() and (seen := fence_of(report)) > fence:
            raise StaleFence(f"{report.name} was written under fence {seen}; a write under {fence} is refused")
        draft = report.with_suffix(".draft")
        draft.write_text(f"{text}  fence: {fence}\n", encoding="utf-8")
        draft.replace(report)


def fence_of(report: Path) -> int:
    """The fence that a report was written under."""
    return int(report.read_text(encoding="utf-8").rpartition("fence:")[2])
