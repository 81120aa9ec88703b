"""What people read: expressions in words, DST notes, the stored form."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcron.errors import TriggerError
from fleetcron.triggers import Cron, Every, Once, Trigger, dst_notes, trigger_from_dict


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("30 2 * * *", "at 02:30 every day"),
        ("30 2,14 * * *", "at 02:30 and 14:30 every day"),
        ("15 30 2 * * *", "at 02:30:15 every day"),
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("5 * * * * *", "at second 5 of every minute"),
        ("*/5 9-17 * * MON-FRI", "every 5 minutes from 09:00 to 17:59 on Monday to Friday"),
        ("@hourly", "every hour"),
        ("0 */2 * * *", "every 2 hours"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("0 22-2/2 * * *", "at 00:00, 02:00 and 22:00 every day"),
        ("*/7 * * * *", "at minute 0 to 56 in steps of 7 of every hour"),
        ("15 */2 * 1,2 *", "at minute 15 of every 2nd hour in January and February"),
        ("*/15 3,9 * * SAT,SUN", "every 15 minutes of hour 3 and 9 on Saturday and Sunday"),
        ("*/20 22-2 * NOV-FEB *", "every 20 minutes from 22:00 to 02:59 in November to February"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday"),
        ("0 0 */2 * 6", "at 00:00 on day 1 to 31 in steps of 2 of the month, if it is Saturday"),
        ("0 0 31 6 0", "at 00:00 on day 31 of the month or on Sunday, in June"),
        ("0 9 LW * *", "at 09:00 on the last weekday (Monday to Friday) of the month"),
        ("0 9 15W,L * *", "at 09:00 on the weekday nearest to day 15 and the last day of the month"),
        ("0 9 * * 1#2,5L", "at 09:00 on the second Monday and the last Friday of the month"),
        ("0 0 30 2 *", "never (no such day exists)"),
    ],
)
def test_cron_in_words(expr: str, words: str) -> None:
    assert Cron(expr, "Europe/Berlin").explain() == f"{words} (Europe/Berlin)"


def test_others_in_words() -> None:
    assert Every("1h30m").explain() == "every 90m"
    assert Every(7, anchor=at(2026, 1, 1, 1)).explain() == "every 7s, counted from 2026-01-01T01:00:00Z"
    assert Once(at(2026, 1, 1, 1)).explain() == "once, at 2026-01-01T01:00:00Z"


@given(st.lists(st.sampled_from(["*", "*/3", "1", "1-3", "2,4", "5-1"]), min_size=5, max_size=6))
def test_everything_can_be_said(fields: list[str]) -> None:
    assert Cron(" ".join(fields)).explain().endswith(" (UTC)")


# ── DST notes ────────────────────────────────────────────────────────────────────────────────────────────────────────

BERLIN = "Europe/Berlin"
TWICE = "02:30 comes twice on 2026-10-25 in Europe/Berlin (clocks go back from 03:00 to 02:00)"
NO_SUCH_DAY = "09:00 does not exist on 2011-12-30 in Pacific/Apia (clocks go from 2011-12-30 00:00 to 2011-12-31 00:00)"


@pytest.mark.parametrize(
    ("expr", "tz", "tick", "note"),
    [
        (
            "30 2 * * *",
            BERLIN,
            at(2026, 3, 29, 1),
            "02:30 does not exist on 2026-03-29 in Europe/Berlin (clocks go from 02:00 to 03:00): runs at 03:00",
        ),
        (
            "30 2 * * *",
            BERLIN,
            at(2026, 10, 25, 0, 30),
            f"{TWICE}: runs the first time only",
        ),
        (
            "*/30 * * * *",
            BERLIN,
            at(2026, 10, 25, 0, 30),
            f"{TWICE}: this is the first",
        ),
        (
            "*/30 * * * *",
            BERLIN,
            at(2026, 10, 25, 1, 30),
            f"{TWICE}: this is the second",
        ),
        (
            "0 9 * * *",
            "Pacific/Apia",
            at(2011, 12, 30, 10),
            f"{NO_SUCH_DAY}: runs at 2011-12-31 00:00",
        ),
        ("0 3 * * *", BERLIN, at(2026, 3, 29, 1), None),  # 03:00 is what was asked for
        ("0 * * * *", BERLIN, at(2026, 3, 29, 1), None),
        ("30 2 * * *", BERLIN, at(2026, 3, 30, 0, 30), None),
        ("30 2 * * *", BERLIN, at(2026, 10, 26, 1, 30), None),
        ("0 3 * * *", BERLIN, at(2026, 10, 25, 2), None),
        ("59 1 * * *", BERLIN, at(2026, 10, 24, 23, 59), None),
        ("30 2 * * *", "UTC", at(2026, 3, 29, 2, 30), None),
    ],
)
def test_dst_notes(expr: str, tz: str, tick: datetime, note: str | None) -> None:
    trigger = Cron(expr, tz)
    assert trigger.latest(tick) == tick  # a real tick
    assert dst_notes(trigger, tick) == note


def test_other_triggers_have_no_dst_notes() -> None:
    assert dst_notes(Every("1h"), at(2026, 3, 29, 1)) is None
    assert dst_notes(Once(at(2026, 3, 29, 1)), at(2026, 3, 29, 1)) is None


# ── The stored form ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("trigger", "stored"),
    [
        (
            Cron("0 9 * * MON-FRI", "Europe/Berlin"),
            {"type": "cron", "expr": "0 9 * * MON-FRI", "tz": "Europe/Berlin"},
        ),
        (Cron("@daily"), {"type": "cron", "expr": "@daily", "tz": "UTC"}),
        (Every("5m"), {"type": "every", "seconds": 300, "anchor": "1970-01-01T00:00:00Z"}),
        (
            Every(0.25, at(2026, 1, 1, 0, 0, 0, 5)),
            {"type": "every", "seconds": 0.25, "anchor": "2026-01-01T00:00:00.000005Z"},
        ),
        (Once(at(2026, 1, 1)), {"type": "once", "at": "2026-01-01T00:00:00Z"}),
    ],
)
def test_stored_form(trigger: Trigger, stored: dict[str, Any]) -> None:
    assert trigger.to_dict() == stored
    assert trigger_from_dict(json.loads(json.dumps(stored))) == trigger


@given(st.timedeltas(timedelta(microseconds=1), timedelta.max), st.datetimes(timezones=st.just(UTC)))
def test_every_interval_survives_json(interval: timedelta, anchor: datetime) -> None:
    trigger = Every(interval, anchor)
    assert trigger_from_dict(json.loads(json.dumps(trigger.to_dict()))) == trigger


def test_optional_keys() -> None:
    assert trigger_from_dict({"type": "cron", "expr": "0 0 * * *"}) == Cron("0 0 * * *")
    assert trigger_from_dict({"type": "every", "seconds": "5m", "anchor": None}) == Every("5m")


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({}, "type None"),
        ({"type": "lunar"}, "type 'lunar'"),
        ({"type": ["cron"]}, "type "),
        ({"type": "cron"}, "needs expr"),
        ({"type": "cron", "expr": "0 0 * * *", "zone": "UTC"}, "has no 'zone'"),
        ({"type": "cron", "expr": 5}, "cron: "),
        ({"type": "cron", "expr": "0 0 * * *", "tz": None}, "tz: "),
        ({"type": "every", "seconds": -1}, "interval: "),
        ({"type": "every", "seconds": 1, "anchor": "2026-01-01"}, "anchor: "),
        ({"type": "once", "at": "soon"}, "at: "),
        ({"type": "once", "at": 5}, "at: "),
        ([], "object"),
        (None, "object"),
    ],
)
def test_malformed_stored_forms(stored: Any, message: str) -> None:
    with pytest.raises(TriggerError, match=message):
        trigger_from_dict(stored)
