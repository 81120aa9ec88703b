"""What a payload may hold, and where it is refused (cases C84, C86, C87)."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcron.errors import PayloadError
from fleetcron.payload import decode, encode_payload, encode_value

MIB = 1024 * 1024


def encode(value: Any, max_bytes: int = MIB) -> str:
    return encode_payload(value, max_bytes=max_bytes)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    x: int
    tags: list[str]


class Pair(NamedTuple):
    left: int
    right: str


class Tagged(msgspec.Struct, tag="t", rename="camel"):
    some_field: int
    absent: Any = msgspec.UNSET


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="ascii", min_codepoint=1)), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(st.characters(codec="ascii", min_codepoint=1)), plain, max_size=5))
@settings(max_examples=100)
def test_what_json_can_hold_comes_back_equal(value: dict[str, Any]) -> None:
    text = encode(value)
    assert decode(text) == value
    assert json.loads(text) == value


@pytest.mark.parametrize(
    "number",
    [
        1970670598291982290,
        2**63 - 1,
        -(2**63),
        2**64,
        2**53 + 1,
        10**4300 - 1,
        1 - 10**4299,
        0.1 + 0.2,
        5e-324,
        1.7e308,
    ],
    ids=lambda number: str(number) if abs(number) < 2**70 else "huge",
)
def test_numbers_keep_all_digits(number: float) -> None:
    assert decode(encode({"id": number, "in": [{"it": number}]})) == {"id": number, "in": [{"it": number}]}


def test_minus_zero_stays_a_zero() -> None:
    assert decode(encode({"x": -0.0})) == {"x": 0}


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, {}),
        ({}, {}),
        (Point(1, ["a"]), {"x": 1, "tags": ["a"]}),
        (Tagged(5), {"type": "t", "someField": 5}),
        (OrderedDict(a=1), {"a": 1}),
        ({"a": (1, Pair(2, "x"))}, {"a": [1, [2, "x"]]}),
        ({"a": Row(1, "b")}, {"a": [1, "b"]}),
        ({"a": [Point(1, [])]}, {"a": [{"x": 1, "tags": []}]}),
        ({"a": Colour.RED, "b": Level.LOW, "c": Name("n"), Name("d"): True}, {"a": "red", "b": 1, "c": "n", "d": True}),
        ({"a": date(2026, 1, 31)}, {"a": "2026-01-31"}),
        ({"a": datetime(2026, 1, 31, 2, tzinfo=UTC)}, {"a": "2026-01-31T02:00:00Z"}),
        ({"a": time(2, 30)}, {"a": "02:30:00"}),
        ({"a": timedelta(days=1, microseconds=1)}, {"a": "P1DT0.000001S"}),
        ({"a": UUID(int=1)}, {"a": "00000000-0000-0000-0000-000000000001"}),
        ({"a": Decimal("1.10")}, {"a": "1.10"}),
        ({"a": "\\u0000 is only text"}, {"a": "\\u0000 is only text"}),
        ({"a": "😀\x01\u2028"}, {"a": "😀\x01\u2028"}),
    ],
)
def test_python_values_have_a_json_form(value: Any, form: dict[str, Any]) -> None:
    assert json.loads(encode(value)) == form


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(1850, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),  # local mean time: an offset with seconds
        datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=timezone(timedelta(hours=-11, minutes=-30))),
    ],
)
def test_a_moment_comes_back_as_the_same_moment(moment: datetime) -> None:
    form = json.loads(encode({"at": moment}))["at"]
    assert msgspec.convert(form, datetime) == moment


CYCLE: list[Any] = []
CYCLE.append({"again": CYCLE})
DEEP: list[Any] = []
for _ in range(101):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "path", "says"),
    [
        ({"user": {"tags": ["a", "b", "c", "\x00"]}}, "$.user.tags[3]", "NUL"),
        ({"a": "\x00"}, "$.a", "NUL"),
        ({"a": {"k\x00": 1}}, r"$.a['k\x00']", "NUL"),
        ({"a": "x\ud800"}, "$.a", r"lone surrogate (\ud800)"),
        ({"\udfff": 1}, r"$['\udfff']", "lone surrogate"),
        ({"a": [float("nan")]}, "$.a[0]", "nan"),
        ({"a": float("inf")}, "$.a", "inf"),
        ({"a": -float("inf")}, "$.a", "-inf"),
        ({"a": 1e400}, "$.a", "inf"),
        ({"a": Decimal("NaN")}, "$.a", "Decimal('NaN')"),
        ({"a": Decimal("-Infinity")}, "$.a", "Infinity"),
        ({"a": datetime(2026, 1, 1)}, "$.a", "naive"),  # noqa: DTZ001 - that is the point
        ({"a": b"x"}, "$.a", "bytes"),
        ({"a": bytearray(b"x")}, "$.a", "bytearray"),
        ({"a": {1}}, "$.a", "set"),
        ({"a": frozenset()}, "$.a", "frozenset"),
        ({"a": object()}, "$.a", "object has no JSON form"),
        ({"a": Point}, "$.a", "type"),
        ({"a": 1j}, "$.a", "complex"),
        ({"a b": {"c": {1: 2}}}, "$['a b'].c", "key of type int"),
        ({None: 1}, "$", "key of type NoneType"),
        ({10**5000: 1}, "$", "key of type int"),
        ({"a": 10**4300}, "$.a", "4,300 digits"),
        ({"a": -(10**4299)}, "$.a", "4,300 digits"),
        ({"a": CYCLE}, "$.a[0].again", "contains itself"),
        ({"a": DEEP}, "$.a" + "[0]" * 99, "100 deep"),
        ([1], "$", "got list"),
        ("{}", "$", "got str"),
        (1, "$", "got int"),
        (Point, "$", "got type"),
        ({"a": Point(float("nan"), [])}, "$.a.x", "nan"),  # type: ignore[arg-type]
    ],
)
def test_what_would_not_survive_is_refused_with_its_path(value: Any, path: str, says: str) -> None:
    with pytest.raises(PayloadError) as refused:
        encode(value)
    assert refused.value.path == path
    assert says in str(refused.value)
    str(refused.value).encode()  # the message itself is fit to be stored


def test_a_hundred_levels_are_allowed() -> None:
    value: Any = 1
    for _ in range(99):
        value = [value]
    assert decode(encode({"a": value})) == {"a": value}


def test_the_limit_is_in_bytes_of_utf8() -> None:
    assert encode({"a": "é"}, max_bytes=10) == '{"a":"é"}'
    with pytest.raises(PayloadError, match=r"payload is 10 bytes, the limit is 9 \(max_payload\)"):
        encode({"a": "é"}, max_bytes=9)


@pytest.mark.parametrize("extra", [{}, {"when": date(2026, 1, 1)}])
def test_a_payload_that_is_too_big_says_how_big(extra: dict[str, Any]) -> None:
    value = {"x": "a" * (10 * MIB), **extra}
    size = len(json.dumps(value, default=str, separators=(",", ":")))
    with pytest.raises(PayloadError, match=f"payload is {size:,} bytes, the limit is 1,048,576"):
        encode(value)


def test_a_small_value_that_unfolds_without_end_costs_little() -> None:
    value: dict[str, Any] = {}
    for _ in range(60):
        value = {"a": value, "b": value}  # 2^60 values as JSON
    with pytest.raises(PayloadError, match="more than 1,000 bytes"):
        encode(value, max_bytes=1000)


def test_a_value_need_not_be_an_object() -> None:
    assert encode_value([1, "a"], max_bytes=100, what="it", limit="n") == '[1,"a"]'
    assert encode_value(None, max_bytes=100, what="it", limit="n") == "null"
    with pytest.raises(PayloadError, match=r"it is 103 bytes, the limit is 100 \(n\)"):
        encode_value("x" * 101, max_bytes=100, what="it", limit="n")
    with pytest.raises(PayloadError, match="set"):
        encode_value({1}, max_bytes=100, what="it", limit="n")


def test_a_lower_digit_limit_of_the_interpreter_is_no_crash() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(PayloadError):
            encode({"a": 10**700})
    finally:
        sys.set_int_max_str_digits(before)
