"""Zone changes found by probing, held against the zone files themselves, and what the engine assumes about them."""

from __future__ import annotations

import importlib.resources
import re
import struct
import zoneinfo
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcron.triggers import tzdata_version
from fleetcron.triggers.wall import DAY_SECONDS, first_day
from fleetcron.triggers.zones import LISTED_UNTIL, zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEYS = sorted(zoneinfo.available_timezones() - {"localtime", "posixrules"})
SOME = [
    *("Europe/Berlin", "America/New_York", "Africa/Casablanca", "Asia/Gaza", "Australia/Lord_Howe", "Pacific/Apia"),
    *("Africa/Freetown", "America/Adak", "Antarctica/Troll", "Asia/Kathmandu", "Europe/Dublin", "UTC"),
]


@cache
def changes(key: str) -> list[tuple[int, int]]:
    """(instant, offset from then on) for each change of offset that the zone's TZif file lists (RFC 8536)."""
    for root in zoneinfo.TZPATH:
        if (file := Path(root, key)).is_file():
            data = file.read_bytes()
            break
    else:
        data = importlib.resources.files("tzdata").joinpath("zoneinfo", *key.split("/")).read_bytes()
    counts = struct.unpack(">6l", data[20:44])
    isutc, isstd, leaps, times, types, chars = counts
    start = 44 + times * 5 + types * 6 + chars + leaps * 8 + isstd + isutc  # skip the 32-bit block
    isutc, isstd, leaps, times, types, chars = struct.unpack(">6l", data[start + 20 : start + 44])
    body = start + 44
    instants = struct.unpack(f">{times}q", data[body : body + times * 8])
    kinds = data[body + times * 8 : body + times * 9]
    offsets = [
        struct.unpack(">l", data[at : at + 4])[0]
        for at in range(body + times * 9, body + times * 9 + types * 6, 6)
    ]  # fmt: skip
    found, current = [], offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != current:
            current = offsets[kind]
            found.append((instant, current))
    return found


@pytest.mark.parametrize("key", SOME)
def test_probing_finds_every_listed_change(key: str) -> None:
    years = range(1880, 2038)
    low, high = (first_day(year) * DAY_SECONDS for year in (years[0], years[-1] + 1))
    spans = [span for year in years for span in zone(key).year(year)]
    assert spans[0].start == low and spans[-1].end == high
    assert all(span.end == following.start for span, following in pairwise(spans))
    found = [(b.start, b.offset) for a, b in pairwise(spans) if a.offset != b.offset]
    listed = changes(key)
    # "Slim" files leave out what the yearly rule at their end implies.
    last = listed[-1][0] if listed else low
    assert [change for change in found if change[0] <= last] == [change for change in listed if low < change[0] < high]


def test_no_two_changes_are_within_one_probe_and_none_is_listed_late() -> None:
    end = first_day(LISTED_UNTIL) * DAY_SECONDS
    for key in KEYS:
        instants = [instant for instant, _ in changes(key)]
        assert all(later - instant > 3 * DAY_SECONDS for instant, later in pairwise(instants)), key
        assert not instants or instants[-1] < end, key


@given(st.sampled_from(SOME), st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC)))  # noqa: DTZ001
@settings(max_examples=300)
def test_offsets_are_zoneinfos(key: str, moment: datetime) -> None:
    second = (moment - EPOCH) // timedelta(seconds=1)
    spans = zone(key).year(moment.year)
    span = spans[bisect_right([span.start for span in spans], second) - 1]
    local = moment.replace(microsecond=0).astimezone(zoneinfo.ZoneInfo(key))
    assert local.utcoffset() == timedelta(seconds=span.offset)


def test_version_names_the_source_and_is_stable() -> None:
    assert re.fullmatch(r"(system|tzdata) \S+", tzdata_version())
    assert tzdata_version() == tzdata_version()


@pytest.mark.parametrize("first_line", ["# version 2031z", None])
def test_version_of_system_files(first_line: str | None, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(zoneinfo.reset_tzpath)
    request.addfinalizer(tzdata_version.cache_clear)
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "London").write_bytes(
        importlib.resources.files("tzdata").joinpath("zoneinfo/UTC").read_bytes()
    )
    if first_line:
        (tmp_path / "tzdata.zi").write_text(f"{first_line}\n# more\n")
    zoneinfo.reset_tzpath([tmp_path])
    tzdata_version.cache_clear()
    found = tzdata_version()
    assert found == "system 2031z" if first_line else re.fullmatch("system #[0-9a-f]{12}", found)


def test_version_of_the_package(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(zoneinfo.reset_tzpath)
    request.addfinalizer(tzdata_version.cache_clear)
    zoneinfo.reset_tzpath([])
    tzdata_version.cache_clear()
    assert tzdata_version() == f"tzdata {importlib.metadata.version('tzdata')}"
