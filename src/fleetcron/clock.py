"""The only module that reads a clock (a lint rule bans it elsewhere).

Three clocks, by name:
* the **database's** clock is the authority for due times and leases; stores read it in SQL, not here. `wall_now` stands in for it
  on SQLite, where database and process share one host.
* `monotonic` measures how long this process may trust what the database told it. On Linux it is CLOCK_BOOTTIME: unlike
  CLOCK_MONOTONIC it goes on counting while the machine is suspended, so a laptop that slept past its lease knows it.
* `sleep` waits, capped: a wait longer than `MAX_WAIT` is cut, so no timer overflows and a stepped clock is noticed within it.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

MAX_WAIT = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def wall_now() -> datetime:
    """The host's wall clock, UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds on a clock that never steps and counts suspended time where the platform can."""
    return time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else time.monotonic()


async def sleep(seconds: float) -> None:
    """Sleep at most `seconds`, never longer than MAX_WAIT: callers re-compute what is left."""
    await asyncio.sleep(min(max(seconds, 0.0), MAX_WAIT))


def block(seconds: float) -> None:
    """The thread's sleep, capped like `sleep`."""
    time.sleep(min(max(seconds, 0.0), MAX_WAIT))


def to_us(moment: datetime) -> int:
    """Microseconds since the Unix epoch, exact (no float)."""
    return (moment - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The inverse of `to_us`, UTC."""
    return _EPOCH + timedelta(microseconds=us)
