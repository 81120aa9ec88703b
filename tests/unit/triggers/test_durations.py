"""Durations: what is read, what is refused, what is written."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcron.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("1.5s", timedelta(seconds=1.5)),
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("2d", timedelta(days=2)),
        ("1d2h3m4s5ms6us", timedelta(1, 4, 6, 5, 3, 2)),
        ("0.5h", timedelta(minutes=30)),
        (" 1m ", timedelta(minutes=1)),
        ("90", timedelta(seconds=90)),
        ("0.1", timedelta(milliseconds=100)),
        (90, timedelta(seconds=90)),
        (0.1, timedelta(milliseconds=100)),
        (1e-6, timedelta(microseconds=1)),
        (timedelta(days=3), timedelta(days=3)),
        (timedelta.max, timedelta.max),
    ],
)
def test_read(value: timedelta | float | str, expected: timedelta) -> None:
    assert parse_duration(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            " ",
            "m",
            "5 m",
            "1h 30m",
            "30m1h",
            "5m5m",
            "5M",
            "1w",
            "5min",
            "-5m",
            "+5m",
            "1e3s",
            ".5s",
            "5.s",
            "٥s",
            "５m",
        ),
        *("1_000", "0x10", "inf", "nan", "1h30", "9" * 100, "1" * 100_000 + "s", "999999999999999999d"),
        *(True, False, None, [], b"5m", float("nan"), float("inf"), float("-inf"), 1e300, 10**400, -(10**400)),
        *(-1, -0.5, timedelta(microseconds=-1), 1e-9, "0.1us", 0, 0.0, "0s", "0h0m", timedelta(0)),
    ],
)
def test_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match="lease: ") as caught:
        parse_duration(value, name="lease")  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [0, 0.0, "0", "0s", "0h0m", timedelta(0)])
def test_zero_where_allowed(value: timedelta | float | str) -> None:
    assert parse_duration(value, allow_zero=True) == timedelta(0)


@pytest.mark.parametrize("value", [-1, "-1s", timedelta(-1), 1e-9])
def test_negative_and_too_small_never(value: timedelta | float | str) -> None:
    with pytest.raises(ValueError, match="delay: "):
        parse_duration(value, "delay", allow_zero=True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1, "1s"),
        (60, "1m"),
        (90, "90s"),
        (100, "100s"),
        (5400, "90m"),
        (86_400, "1d"),
        (86_401, "1d1s"),
        (3_723, "3723s"),
        (0.25, "250ms"),
        (0.5, "0.5s"),
        (1.5, "1.5s"),
        (0.000_001, "1us"),
        (-90, "-90s"),
    ],
)
def test_written(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.timedeltas(timedelta(0), timedelta.max))
def test_written_is_read_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration), allow_zero=True) == duration


@given(st.floats(0, 1e9) | st.integers(0, 10**9))
def test_numbers_are_seconds(seconds: float) -> None:
    if seconds == 0 or seconds >= 1e-6:
        assert abs(parse_duration(seconds, allow_zero=True) - timedelta(seconds=seconds)) <= timedelta(microseconds=1)
