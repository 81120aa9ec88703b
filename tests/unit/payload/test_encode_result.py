"""Recording the end of a run never fails because of what it returned (case C83)."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcron.payload import encode_result, safe_text


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class HostileDict(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no")


@dataclasses.dataclass
class Answer:
    n: float


CYCLE: list[Any] = [1]
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (0, 0),
        ("", ""),
        ([], []),
        ({"id": 2**64}, {"id": 2**64}),
        (Answer(1.5), {"n": 1.5}),
        ({"k\x00": "v\x00"}, {"k\\x00": "v\\x00"}),
        ("\ud800", "\\ud800"),
        ([float("nan"), float("inf"), -float("inf")], ["NaN", "Infinity", "-Infinity"]),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1), "2026-01-01T00:00:00"),  # noqa: DTZ001 - a result may be naive: it is shown, not computed with
        ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
        ({3}, [3]),
        (b"\xff", "b'\\xff'"),
        (CYCLE, [1, "<circular list>"]),
        ([-(10**4300)], [hex(-(10**4300))]),
        (1j, "1j"),
    ],
)
def test_what_has_no_json_form_is_made_visible(value: Any, stored: Any) -> None:
    text = encode_result(value, max_bytes=10_000)
    assert text is not None
    assert json.loads(text) == stored


def test_none_is_no_result() -> None:
    assert encode_result(None, max_bytes=100) is None


@pytest.mark.parametrize("value", [Hostile(), {"a": Hostile()}, HostileDict(a=1), [HostileDict(a=1)]])
def test_an_object_that_fights_back_is_recorded_all_the_same(value: Any) -> None:
    text = encode_result(value, max_bytes=1000)
    assert text is not None
    assert "RuntimeError" in json.loads(text)


def cut_size(text: str) -> int:
    return int(text.rpartition("[cut: ")[2].removesuffix(" bytes]"))


@given(st.text() | st.lists(st.text(), min_size=1), st.integers(40, 200))
@settings(max_examples=200)
def test_a_long_result_is_cut_into_a_valid_string(value: Any, limit: int) -> None:
    whole = encode_result(value, max_bytes=10**6)
    text = encode_result(value, max_bytes=limit)
    assert whole is not None
    assert text is not None
    assert len(text.encode()) <= limit
    if len(whole.encode()) <= limit:
        assert text == whole
        return
    shown, full = json.loads(text), json.loads(whole) if isinstance(value, str) else whole
    kept = shown.rpartition("… [cut: ")[0]
    assert full.startswith(kept)
    assert cut_size(shown) == len(full.encode()) - len(kept.encode()) > 0


def test_a_cut_string_is_cut_as_itself_and_anything_else_as_json() -> None:
    assert json.loads(encode_result("x" * 100, max_bytes=30) or "") == "x" * 9 + "… [cut: 91 bytes]"
    assert json.loads(encode_result(["x" * 100], max_bytes=35) or "").startswith('["x')


def test_results_without_end_end() -> None:
    value: Any = []
    for _ in range(60):
        value = [value, value]
    text = encode_result(value, max_bytes=1000)
    assert text is not None
    assert len(text.encode()) <= 1000


@given(st.text(st.characters()))
@settings(max_examples=100)
def test_safe_text_fits_any_database(text: str) -> None:
    safe = safe_text(text)
    assert "\x00" not in safe
    safe.encode()
    if "\x00" not in text and not any("\ud800" <= char <= "\udfff" for char in text):
        assert safe == text
