"""Which ticks of a past range run: cut, order, modes, portions, and the share that backfills have of a worker's claims."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcron.decide.backfill import SHARE, Portion, Seen, Share, Tick, portion, ticks, total, wanted
from fleetcron.decide.fairness import order_lanes
from fleetcron.errors import ConfigError
from fleetcron.model import BACKFILL_PRIORITY, Backfill, Schedule
from fleetcron.store.protocol import Lane
from fleetcron.triggers import Cron, Every, Trigger

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
T0 = datetime(2026, 3, 1, tzinfo=UTC)
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def a_schedule(trigger: Trigger | None = None, **more: object) -> Schedule:
    return Schedule(**{"name": "s", "job": "j", "trigger": trigger or Every(3600), "misfire": "skip", **more})  # type: ignore[arg-type]


def a_backfill(start: datetime, end: datetime, **more: object) -> Backfill:
    given = {
        "schedule": "s",
        "start": start,
        "end": end,
        "order": "asc",
        "mode": "missing",
        "max_running": 1,
        "total": 0,
    }
    return Backfill(**given | more)  # type: ignore[arg-type]


def walk(schedule: Schedule, backfill: Backfill, limit: int) -> list[Tick]:
    """All of it, in pieces."""
    found: list[Tick] = []
    while look := ticks(schedule, backfill, limit):
        found += look
        backfill = msgspec.structs.replace(backfill, cursor=look[-1].nominal_at)
    return found


moments = st.integers(0, 2 * 365 * 86400).map(
    lambda seconds: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)
triggers = st.sampled_from(
    [
        Every("1h"), Every("7h"), Cron("0 0 * * *", tz="America/New_York"), Cron("30 2 * * *", tz="Europe/Berlin"),
        Cron("*/90 * * * *"), Cron("0 0 1 * *", tz="Asia/Kolkata"), Cron("0 */5 * * 1-5", tz="Pacific/Auckland"),
    ]
)  # fmt: skip


@given(triggers, moments, st.timedeltas(timedelta(seconds=1), timedelta(days=20)), st.integers(1, 50))
def test_every_tick_once_in_pieces_of_any_size(trigger: Trigger, start: datetime, span: timedelta, limit: int) -> None:
    schedule, end = a_schedule(trigger), start + span
    forward = walk(schedule, a_backfill(start, end), limit)
    backward = walk(schedule, a_backfill(start, end, order="desc"), limit)
    assert forward == backward[::-1]
    assert [tick.nominal_at for tick in forward] == [
        t for t in trigger.upcoming(start - timedelta(microseconds=1), len(forward) + 1) if t < end
    ]
    for before, after in pairwise(forward):
        assert before.nominal_at == after.prev_at, "data intervals have no gap and no overlap"
    if forward:
        assert total(schedule, start, end, NOW) == (end, len(forward))
    else:
        with pytest.raises(ConfigError, match="no ticks"):
            total(schedule, start, end, NOW)


@given(st.data(), st.sampled_from(["missing", "failed", "all"]), st.integers(0, 8))
def test_portions_make_up_the_whole(data: st.DataObject, mode: str, room: int) -> None:
    """Portion after portion, with room that comes and goes: each wanted tick runs once, each other is passed over once, in order."""
    look = [Tick(T0 + i * HOUR, None) for i in range(20)]
    run = st.builds(
        Seen, st.just(0), st.sampled_from(["open", "succeeded", "failed", "missed", "cancelled"]), st.booleans()
    )
    seen = {tick.nominal_at: data.draw(st.lists(run, max_size=1)) for tick in look}
    chosen: list[datetime] = []
    existing, rest = 0, list(look)
    for _ in range(100):
        part = portion(mode, rest, seen, room)  # type: ignore[arg-type]
        assert len(part.run) <= room
        chosen += [one.nominal_at for one in part.run]
        existing += part.existing
        rest = [tick for tick in rest if part.cursor is None or tick.nominal_at > part.cursor]
        room = data.draw(st.integers(0, 3)) if rest else 0
    wants = [tick.nominal_at for tick in look if wanted(mode, seen[tick.nominal_at])]  # type: ignore[arg-type]
    assert chosen == wants[: len(chosen)]
    if not rest:
        assert chosen == wants and existing == len(look) - len(wants)


@pytest.mark.parametrize(
    ("runs", "missing", "failed"),
    [
        ([], True, False),
        ([Seen(0, "missed", False)], True, False),
        ([Seen(0, "expired", False)], True, False),
        ([Seen(0, "cancelled", False)], True, False),
        ([Seen(0, "cancelled", True)], False, True),
        ([Seen(0, "open", False)], False, False),
        ([Seen(0, "open", True)], False, False),
        ([Seen(0, "succeeded", True)], False, False),
        ([Seen(0, "discarded", True)], False, False),
        ([Seen(0, "failed", True)], False, True),
        ([Seen(0, "failed", True), Seen(1, "succeeded", True)], False, False),
        ([Seen(0, "succeeded", True), Seen(1, "failed", True)], False, True),
        ([Seen(0, "succeeded", True), Seen(1, "cancelled", False)], False, False),
        ([Seen(0, "failed", True), Seen(1, "cancelled", False)], False, True),
        ([Seen(0, "failed", True), Seen(1, "open", False)], False, False),
    ],
)
def test_modes(runs: list[Seen], missing: bool, failed: bool) -> None:
    assert (wanted("missing", runs), wanted("failed", runs), wanted("all", runs)) == (missing, failed, True)


def test_a_run_beside_others_has_the_next_generation() -> None:
    seen = {T0: [Seen(0, "failed", True), Seen(1, "failed", True)]}
    assert portion("all", [Tick(T0, None), Tick(T0 + HOUR, T0)], seen, 5).run == [
        (T0, None, 2),
        (T0 + HOUR, T0, 0),
    ]


def test_without_room_nothing_that_is_wanted_is_passed_over() -> None:
    look = [Tick(T0 + i * HOUR, None) for i in range(4)]
    seen = {T0: [Seen(0, "succeeded", True)]}
    assert portion("missing", look, seen, 0) == Portion([], 1, T0)
    assert portion("missing", look[1:], seen, 0) == Portion([], 0, None)


def test_C96_borders_are_local_midnights() -> None:
    zone = ZoneInfo("America/New_York")
    daily = a_schedule(Cron("0 0 * * *", tz="America/New_York"))
    start, end = datetime(2026, 3, 7, tzinfo=zone), datetime(2026, 3, 11, tzinfo=zone)
    found = walk(daily, a_backfill(start.astimezone(UTC), end.astimezone(UTC)), 2)
    assert [tick.nominal_at for tick in found] == [
        datetime(2026, 3, 7, 5, tzinfo=UTC),
        datetime(2026, 3, 8, 5, tzinfo=UTC),
        datetime(2026, 3, 9, 4, tzinfo=UTC),
        datetime(2026, 3, 10, 4, tzinfo=UTC),
    ]
    assert [tick.nominal_at.astimezone(zone).date().day for tick in found] == [7, 8, 9, 10]


def test_the_range_is_cut_to_now_and_kept_within_the_schedule() -> None:
    daily = a_schedule(Every(86400), start=T0 + 2 * DAY, end=T0 + 5 * DAY)
    assert total(daily, T0, T0 + 10 * DAY, NOW)[1] == 4
    assert total(daily, T0, T0 + 10 * DAY, T0 + 4 * DAY) == (T0 + 4 * DAY, 2)
    for order in ("asc", "desc"):
        assert len(walk(daily, a_backfill(T0, T0 + 10 * DAY, order=order), 3)) == 4
    with pytest.raises(ConfigError, match="start 2026-03-03T00:00:00Z and an end 2026-03-06T00:00:00Z of its own"):
        total(daily, T0, T0 + DAY, NOW)


def test_an_end_is_not_part_of_the_range() -> None:
    assert total(a_schedule(Every(86400)), T0, T0 + DAY, NOW)[1] == 1


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [(T0, T0, "not before"), (T0 + DAY, T0, "not before"), (NOW, NOW + DAY, "in the future")],
)
def test_impossible_ranges(start: datetime, end: datetime, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        total(a_schedule(), start, end, NOW)


def test_half_a_century_of_seconds_is_counted_and_begun_at_once() -> None:
    every_second = a_schedule(Cron("* * * * * *"))
    end, count = total(every_second, datetime(1970, 1, 1, tzinfo=UTC), T0, NOW)
    assert count == (T0 - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    newest = ticks(every_second, a_backfill(datetime(1970, 1, 1, tzinfo=UTC), end, order="desc"), 2)
    assert [tick.nominal_at for tick in newest] == [T0 - timedelta(seconds=1), T0 - timedelta(seconds=2)]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=200))
def test_backfills_have_their_share_of_any_claims(claims: list[int]) -> None:
    share, others, backfills = Share(), 0, 0
    for claim in claims:
        owed = min(share.owed(), claim)
        if owed:
            share.took(BACKFILL_PRIORITY, owed)
        if claim > owed:
            share.took(5, claim - owed)
        others, backfills = others + claim - owed, backfills + owed
        assert backfills * (SHARE - 1) <= others, "no more than their share"
    assert others // (SHARE - 1) - backfills <= max(claims) // (SHARE - 1) + 1, (
        "no less, but for what the last claim brought"
    )


def test_nothing_is_saved_up() -> None:
    share = Share()
    share.took(5, 10_000)
    assert share.owed() > 500
    share.forget()
    assert share.owed() == 0


@pytest.mark.parametrize("ageing", [timedelta(0), timedelta(minutes=1)])
def test_however_old_a_backfill_comes_after_all_live_work(ageing: timedelta) -> None:
    lanes = [Lane("q", BACKFILL_PRIORITY, "", T0), Lane("q", 9, "", NOW), Lane("q", 0, "", NOW)]
    assert [lane.priority for lane in order_lanes(lanes, ageing=ageing, cursor={})] == [0, 9, BACKFILL_PRIORITY]
