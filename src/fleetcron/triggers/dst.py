"""Notes for people: what a change of the clocks did to a tick."""

from __future__ import annotations

from datetime import datetime, timedelta

from fleetcron.triggers.base import EPOCH, Trigger, utc
from fleetcron.triggers.cron import Cron
from fleetcron.triggers.wall import DAY_SECONDS


def dst_notes(trigger: Trigger, tick: datetime) -> str | None:
    """A short note if `tick` was moved by a gap or its wall time comes twice; else None, as for Every and Once."""
    if not isinstance(trigger, Cron):
        return None
    moment = (utc("tick", tick) - EPOCH) // timedelta(seconds=1)
    zone, wall, fixed = trigger.zone, trigger.plan.wall, trigger.plan.fixed
    spans = zone.backward(moment)
    now, before = next(spans), next(spans, None)
    shown = moment + now.offset
    if fixed and before is not None and now.start == moment and now.offset > before.offset:
        low = moment + before.offset
        skipped = wall.first(low, shown)
        if skipped is not None:
            clock = _time if _date(low) == _date(shown) else _date_time  # a zone that crosses the date line skips a day
            return (
                f"{_time(skipped)} does not exist on {_date(skipped)} in {zone.key} "
                f"(clocks go from {clock(low)} to {clock(shown)}): runs at {clock(shown)}"
            )
    if before is not None and before.start <= shown - before.offset < before.end:
        top, bottom = now.start + before.offset, now.start + now.offset
        which = "this is the second"
    else:
        after = next((span for span in zone.forward(now.end)), None)
        if after is None or not after.start <= shown - after.offset < after.end:
            return None
        top, bottom = now.end + now.offset, now.end + after.offset
        which = "runs the first time only" if fixed else "this is the first"
    return (
        f"{_time(shown)} comes twice on {_date(shown)} in {zone.key} "
        f"(clocks go back from {_time(top)} to {_time(bottom)}): {which}"
    )


def _time(wall: int) -> str:
    return f"{EPOCH + timedelta(seconds=wall % DAY_SECONDS):%H:%M:%S}".removesuffix(":00")


def _date(wall: int) -> str:
    return f"{EPOCH + timedelta(seconds=wall):%Y-%m-%d}"


def _date_time(wall: int) -> str:
    return f"{_date(wall)} {_time(wall)}"
