"""Payloads and results as JSON text: what a database may be handed, decided once for both stores.

* `encode_payload` is strict: it refuses what would not come back equal, with the path of the bad value, while the
  author of the payload is still on the stack.
* `encode_result` never refuses: recording the end of a run must not fail because of what the run returned.

msgspec does the encoding, but lets through what this rule does not: NaN and infinity become null, bytes base64, sets
arrays, numbers keys, and naive datetimes stay naive. So a value is encoded at once only if it is made of exact JSON
types; for all others a slower walk finds the offender or brings it into JSON form.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from fleetcron.errors import PayloadError

MAX_DEPTH = 100
MAX_DIGITS = 4300  # what CPython converts between int and text by default; msgspec counts a minus sign as one of them
_INT_OVER, _INT_UNDER = 10**MAX_DIGITS, -(10 ** (MAX_DIGITS - 1))
_UNREADABLE = re.compile(rb"-\d{4300}")
_NUL = b"\\u0000"
_PLAIN = frozenset({str, int, float, bool, type(None), dict, list, tuple})
_SIMPLE = frozenset({str, int, bool, type(None)})
_BOXES = frozenset({dict, list, tuple})
_STR = frozenset({str})
# A list that holds one list twice, which holds one list twice, … is small in memory and endless as JSON. A value has at
# least a byte of JSON, so this bounds the work and still leaves room to name the true size of what is too long.
_VALUES_PER_BYTE = 16
_MINUTE = timedelta(minutes=1)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_encode = msgspec.json.Encoder().encode


def encode_payload(value: Any, *, max_bytes: int) -> str:
    """The JSON text of a payload: an object whose keys are the handler's parameters; None is `{}`.

    Takes dicts and other mappings, dataclasses and msgspec Structs, of str, int, float, bool, None, lists, tuples,
    aware datetimes, dates, times, timedeltas, UUIDs, Decimals and Enums. Raises PayloadError, with `.path`, for what
    JSON, PostgreSQL or the way back would change or refuse, and for more than `max_bytes` bytes of UTF-8.
    """
    if value is None:
        return "{}"
    if type(value) is not dict and not _is_object(value):
        kind = type(value).__name__
        raise PayloadError(f"expected an object (a dict) whose keys are the handler's parameters, got {kind}")
    return _encode_strict(value, max_bytes, "payload", "max_payload")


def encode_value(value: Any, *, max_bytes: int, what: str, limit: str) -> str:
    """Like `encode_payload` for any JSON value, not only an object. `what` and `limit` name it in the size error."""
    return _encode_strict(value, max_bytes, what, limit)


def encode_result(value: Any, *, max_bytes: int) -> str | None:
    """The JSON text of what a handler returned; None for None. Never raises.

    What has no JSON form is made visible: NUL becomes the four characters `\\x00`, a lone surrogate `\\ud800`, NaN the
    string "NaN", an unknown object its repr. What is longer than `max_bytes` becomes the JSON string of its first part
    (a string's own first part, else that of its JSON text), which ends in `… [cut: N bytes]`.
    """
    if value is None:
        return None
    raw = _encode_plain(value, max_bytes)
    if raw is None:
        try:
            value = _Walk(max_bytes, strict=False).walk(value)
            raw = _encode(value)
        except Exception as error:  # noqa: BLE001 - the value's own __repr__ or items() run here and may raise anything
            value = f"<{type(value).__name__} that has no JSON form: {type(error).__name__}>"
            raw = _encode(value)
    if len(raw) <= max_bytes:
        return raw.decode()
    return _cut(value if isinstance(value, str) else raw.decode(), max_bytes)


def decode(text: str) -> Any:
    """The plain JSON value of a stored text, integers exact."""
    return msgspec.json.decode(text)


def safe_text(text: str) -> str:
    """`text` as any database takes it: NUL and lone surrogates written visibly (`\\x00`, `\\ud800`)."""
    if "\x00" in text:
        text = text.replace("\x00", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _encode_plain(value: Any, max_bytes: int) -> bytes | None:
    """The JSON of `value` if it is plain and beyond doubt; else None, and the walk decides."""
    if not _is_plain(value, max_bytes * _VALUES_PER_BYTE):
        return None
    try:
        raw = _encode(value)
    except ValueError:  # a lone surrogate, or an int of more than 4,300 digits
        return None
    # Both may also be harmless, within a text; the walk tells.
    doubtful = _NUL in raw or (len(raw) > MAX_DIGITS and _UNREADABLE.search(raw))
    return None if doubtful else raw


def _encode_strict(value: Any, max_bytes: int, what: str, limit: str) -> str:
    raw = _encode_plain(value, max_bytes)
    if raw is None:
        try:
            raw = _encode(_Walk(max_bytes, strict=True).walk(value))
        except _SizeError:
            raise PayloadError(f"{what} is more than {max_bytes:,} bytes, which is the limit ({limit})") from None
        except PayloadError:
            raise
        except ValueError as error:  # sys.set_int_max_str_digits is lower here
            raise PayloadError(str(error)) from None
    if len(raw) > max_bytes:
        raise PayloadError(f"{what} is {len(raw):,} bytes, the limit is {max_bytes:,} ({limit})")
    return raw.decode()


def _is_object(value: Any) -> bool:
    return isinstance(value, (Mapping, msgspec.Struct)) or _is_dataclass(value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_plain(value: Any, budget: int) -> bool:
    """Only exact JSON types, finite numbers, str keys, at most MAX_DEPTH deep, at most `budget` values."""
    kind = type(value)
    if kind is dict:  # most payloads: one level of names, numbers and texts
        for key, item in value.items():
            if type(key) is not str or type(item) not in _SIMPLE:
                break
        else:
            return True
    elif kind in _SIMPLE:
        return True
    level = [value] if kind in _BOXES else [[value]]
    for _ in range(MAX_DEPTH):  # level by level: a cycle ends at the depth limit
        below: list[Any] = []
        for box in level:
            budget -= len(box)
            if budget < 0 or not _is_plain_box(box, below):
                return False
        if not below:
            return True
        level = below
    return False


def _is_plain_box(box: Any, below: list[Any]) -> bool:
    """One container, without what its containers hold: those are added to `below`."""
    items = box
    if type(box) is dict:
        if box and set(map(type, box)) != _STR:
            return False
        items = box.values()
    kinds = set(map(type, items))
    if not kinds <= _PLAIN or (float in kinds and not all(math.isfinite(x) for x in items if type(x) is float)):
        return False
    if not kinds.isdisjoint(_BOXES):
        below += [item for item in items if type(item) in _BOXES]
    return True


class _SizeError(Exception):
    """More values than the budget has: far more than fit."""


class _Walk:
    """Brings one value into exact JSON types, or refuses it (strict) or writes the offender visibly (not strict)."""

    def __init__(self, max_bytes: int, *, strict: bool) -> None:
        self.strict = strict
        self.budget = max_bytes * _VALUES_PER_BYTE
        self.path: list[str | int] = []
        self.open: list[int] = []  # ids of the containers around the value

    def walk(self, value: Any) -> Any:
        self.budget -= 1
        if self.budget < 0:
            if self.strict:
                raise _SizeError
            return "…"
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Enum):
            return self.walk(value.value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int):
            if _INT_UNDER < value < _INT_OVER:
                return int(value)
            return self.bad(f"an integer of more than {MAX_DIGITS:,} digits", hex(value))
        if isinstance(value, float):
            if math.isfinite(value):
                return float(value)
            return self.bad(f"{float(value)} has no JSON form; send None or a string", _number(value))
        if isinstance(value, (date, time, timedelta, UUID, Decimal)):
            return self.leaf(value)
        return self.box(value)

    def text(self, value: str) -> str:
        if "\x00" in value:
            self.bad("holds a NUL character (\\x00), which PostgreSQL cannot store", None)
        elif not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                self.bad(f"holds a lone surrogate (\\u{ord(value[error.start]):04x}), which is not valid Unicode", None)
        return str.__str__(value) if self.strict else safe_text(str.__str__(value))

    def leaf(self, value: date | time | timedelta | UUID | Decimal) -> Any:
        if isinstance(value, Decimal) and not value.is_finite():
            return self.bad(f"Decimal('{value}') has no JSON form; send None or a string", str(value))
        if isinstance(value, datetime):
            offset = value.utcoffset()
            if offset is None:
                return self.bad("a naive datetime; give it a zone, such as tzinfo=UTC", value.isoformat())
            # RFC 3339 has no seconds in an offset; local mean times before about 1900 do.
            if offset % _MINUTE:
                value = value.astimezone(UTC)
        return msgspec.to_builtins(value)

    def box(self, value: Any) -> Any:
        items: Iterable[tuple[Any, Any]] | None = None
        if isinstance(value, (list, tuple)):
            pass
        elif isinstance(value, Mapping):
            items = value.items()
        elif isinstance(value, msgspec.Struct):
            items = _fields(value)
            if type(value).__struct_config__.array_like:
                value, items = [item for _, item in items], None
        elif _is_dataclass(value):
            items = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
        elif not self.strict and isinstance(value, (set, frozenset)):
            value = list(value)
        else:
            return self.bad(_advice(value), None, value)
        if id(value) in self.open:
            return self.bad(f"a {type(value).__name__} that contains itself", f"<circular {type(value).__name__}>")
        if len(self.open) >= MAX_DEPTH:
            return self.bad(f"nested more than {MAX_DEPTH} deep", "…")
        self.open.append(id(value))
        result = self.array(value) if items is None else self.object(items)
        self.open.pop()
        return result

    def array(self, value: Iterable[Any]) -> list[Any]:
        out = []
        for index, item in enumerate(value):
            self.path.append(index)
            out.append(self.walk(item))
            self.path.pop()
        return out

    def object(self, items: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        out = {}
        for key, item in items:
            if isinstance(key, Enum):
                key = key.value
            if not isinstance(key, str):
                key = self.bad(f"has a key of type {type(key).__name__}; the keys of a JSON object are text", None, key)
            self.path.append(key)
            out[self.text(key)] = self.walk(item)
            self.path.pop()
        return out

    def bad(self, message: str, instead: str | None, shown: Any = None) -> str:
        """Refuse the value here, or say what to write `instead` of it (None: the repr of `shown`)."""
        if self.strict:
            raise PayloadError(message, path_text(self.path))
        return safe_text(repr(shown)) if instead is None else instead


def path_text(path: Iterable[str | int]) -> str:
    """`$.user.tags[3]`; a key that is no plain name is quoted, with what cannot be shown escaped."""
    out = "$"
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if _NAME.fullmatch(part) else f"[{part!r}]"
    return out


def _fields(value: msgspec.Struct) -> list[tuple[str, Any]]:
    """The encoded names and values of a Struct, its tag first, as msgspec writes them."""
    kind = type(value)
    config = kind.__struct_config__
    tag = [(config.tag_field or "type", config.tag)] if config.tag is not None else []
    pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return tag + [(encoded, item) for encoded, name in pairs if (item := getattr(value, name)) is not msgspec.UNSET]


def _advice(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{kind} have no JSON form; send text, or base64 of it"
    if isinstance(value, (set, frozenset)):
        return f"a {kind} has no JSON form; send a sorted list"
    return f"{kind} has no JSON form; send a dict, list, str, number, bool, date, UUID, Decimal, Enum or dataclass"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _cut(text: str, max_bytes: int) -> str:
    """The JSON string of the longest first part of `text` that fits with its mark (the mark alone is never cut)."""
    total = len(text.encode())

    def cut(chars: int) -> bytes:
        first = text[:chars]
        return _encode(f"{first}… [cut: {total - len(first.encode())} bytes]")

    fits, over = 0, min(len(text), max_bytes) + 1
    while over - fits > 1:
        middle = (fits + over) // 2
        if len(cut(middle)) <= max_bytes:
            fits = middle
        else:
            over = middle
    return cut(fits).decode()
