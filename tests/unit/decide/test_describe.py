"""Errors as text: C76 (exceptions that fight back) and C83 (content that databases refuse)."""

from __future__ import annotations

import re
import socket
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcron.decide.describe import cut, describe_error

LIMIT = 65_536


def raised(exc: BaseException) -> BaseException:
    """With a traceback, as a handler's exception has one."""
    try:
        raise exc
    except BaseException as caught:
        return caught


def storable(*texts: str) -> None:
    for text in texts:
        assert type(text) is str
        text.encode("utf-8")
        assert "\x00" not in text


def test_an_ordinary_error() -> None:
    line, trace = describe_error(raised(ValueError("no such customer: 42")), LIMIT)
    assert line == "ValueError: no such customer: 42"
    assert trace.startswith("Traceback (most recent call last):\n") and "in raised" in trace
    assert trace.rstrip().endswith(line)


def test_an_error_without_a_message() -> None:
    assert describe_error(KeyboardInterrupt(), LIMIT)[0] == "KeyboardInterrupt"


def test_the_line_is_one_line() -> None:
    line, trace = describe_error(raised(ValueError("a\nb\r\n\tc\x85d\u2028e")), LIMIT)
    assert line == r"ValueError: a\nb\r\n\tc\x85d\u2028e"
    assert "ValueError: a\nb" in trace


# ── C83 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_c83_nul_and_surrogates_become_visible() -> None:
    line, trace = describe_error(raised(ValueError("a\x00b \ud800 c \x1b[31m")), LIMIT)
    assert line == r"ValueError: a\x00b \ud800 c \x1b[31m"
    assert line in trace
    storable(line, trace)


@given(st.text(), st.integers(0, 300))
def test_c83_any_message_can_be_stored(message: str, limit: int) -> None:
    line, trace = describe_error(raised(ValueError(message)), limit)
    storable(line, trace)
    assert "\n" not in line
    for text in (line, trace):
        assert len(text.encode()) <= max(limit, len("… [cut: 99999 bytes]".encode()))


# ── C76 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class TwoArgumentsError(Exception):
    """Cannot be un-pickled."""

    def __init__(self, a: str, b: str) -> None:
        super().__init__(a)


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


class ExitsError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NumberError(Exception):
    def __str__(self) -> Any:
        number: Any = 42
        return number


class UnreducibleError(Exception):
    def __reduce__(self) -> NoReturn:
        raise RuntimeError("no")


class EndlessError(Exception):
    def __str__(self) -> str:
        return str(self)


class Slippery(str):
    __slots__ = ()

    def encode(self, *args: Any) -> NoReturn:
        raise RuntimeError("no")

    __format__ = __add__ = replace = encode


class DisguisedError(Exception):
    def __str__(self) -> str:
        return Slippery("hi")


class HostileError(Exception):
    __cause__ = property(lambda self: 1 / 0)
    __traceback__ = property(lambda self: 1 / 0)


class BadNotesError(Exception):
    __notes__ = (MuteError(),)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("exc", "line"),
    [
        (TwoArgumentsError("a", "b"), "TwoArgumentsError: a"),
        (MuteError(), "MuteError: its message could not be read"),
        (ExitsError(), "ExitsError: its message could not be read"),
        (NumberError(), "NumberError: its message could not be read"),
        (UnreducibleError("x"), "UnreducibleError: x"),
        (EndlessError(), "EndlessError: its message could not be read"),
        (DisguisedError(), "DisguisedError: hi"),
        (HostileError("x"), "HostileError: x"),
        (BadNotesError("x"), "BadNotesError: x"),
        (SystemExit(1), "SystemExit: 1"),
        (ExceptionGroup("two", [ValueError("one"), MuteError()]), "ExceptionGroup: two (2 sub-exceptions)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_c76_exceptions_that_fight_back(exc: BaseException, line: str) -> None:
    text, trace = describe_error(raised(exc), LIMIT)
    assert text == line
    assert line.partition(":")[0] in trace
    storable(text, trace)


def test_c76_an_exception_that_holds_a_socket() -> None:
    with socket.socket() as held:
        assert describe_error(raised(OSError("broken", held)), LIMIT)[0].startswith("OSError: ")


def test_causes_contexts_groups_and_notes_are_in_the_traceback() -> None:
    def handler() -> None:
        try:
            try:
                raise KeyError("first")
            except KeyError as first:
                raise ExceptionGroup("several", [ValueError("inner")]) from first
        except ExceptionGroup:
            last = RuntimeError("last")
            last.add_note("a note")
            raise last  # noqa: B904 - the implicit context is what is tested

    try:
        handler()
    except RuntimeError as caught:
        line, trace = describe_error(caught, LIMIT)
    assert line == "RuntimeError: last"
    for part in ("KeyError: 'first'", "direct cause", "several", "ValueError: inner", "During handling", "a note"):
        assert part in trace


def test_a_cycle_of_contexts_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    assert describe_error(one, LIMIT)[0] == "ValueError: one"


def test_recursion_is_described() -> None:
    def dive() -> NoReturn:
        dive()

    try:
        dive()
    except RecursionError as caught:
        line, trace = describe_error(caught, LIMIT)
    assert line.startswith("RecursionError: ")
    assert "repeated" in trace and len(trace) < 5_000


def test_groups_deeper_than_the_stack() -> None:
    deep: Exception = ValueError("core")
    for _ in range(5_000):
        deep = ExceptionGroup("layer", [deep])
    line, trace = describe_error(raised(deep), LIMIT)
    assert line == "ExceptionGroup: layer (1 sub-exception)"
    assert line in trace and "in raised" in trace
    while isinstance(deep, ExceptionGroup):  # taken apart by hand: freeing it at once would recurse as deep
        deep = deep.exceptions[0]


# ── Cutting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_cut_says_how_much() -> None:
    line, trace = describe_error(raised(ValueError("x" * 1_000_000)), 1_000)
    for text in (line, trace):
        assert len(text.encode()) <= 1_000
        assert re.search(r"… \[cut: \d+ bytes\]$", text)
    assert line.startswith("ValueError: xxx")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 200))
def test_cut_keeps_its_limit_and_counts_right(text: str, limit: int) -> None:
    size = len(text.encode())
    short = cut(text, limit)
    if size <= limit:
        assert short == text
        return
    found = re.fullmatch(r"(.*)… \[cut: (\d+) bytes\]", short, re.DOTALL)
    assert found is not None
    assert text.startswith(found[1])
    assert len(found[1].encode()) + int(found[2]) == size
    assert len(short.encode()) <= limit or found[1] == ""
