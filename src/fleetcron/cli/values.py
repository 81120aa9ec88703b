"""What people type, checked: a wrong value is a usage error that says what is allowed."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any, NoReturn

import click

from fleetcron.clock import wall_now
from fleetcron.durations import parse_duration


class Duration(click.ParamType[str]):
    """ "90s", "5m", "1h30m"; kept as it was typed, so that it can be passed on."""

    name = "duration"

    def __init__(self, *, allow_zero: bool = False) -> None:
        self._allow_zero = allow_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_duration(value, name=param.opts[0] if param else "duration", allow_zero=self._allow_zero)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class Moment(click.ParamType[datetime]):
    """An instant, RFC 3339 with its zone; with `ago`, also a duration before now."""

    name = "time"

    def __init__(self, *, ago: bool = False) -> None:
        self._ago = ago

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return self._before_now(value, param, ctx)
        if moment.utcoffset() is None:
            self.fail(f"{value!r} has no time zone; add Z (UTC) or an offset such as +02:00", param, ctx)
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            self.fail(f"{value!r} is outside the calendar", param, ctx)

    def _before_now(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if self._ago:
            try:
                return wall_now() - parse_duration(value)
            except (ValueError, OverflowError):
                pass
        also = ', or a time before now such as "90m"' if self._ago else ""
        text = f"{value!r} is not a time; expected RFC 3339 such as 2026-03-29T01:00:00Z{also}"
        raise click.BadParameter(text, ctx=ctx, param=param)


def _no_number(word: str) -> NoReturn:
    """Python's reader takes NaN and Infinity; nobody else's does."""
    raise ValueError(f"{word} is no JSON number")


class Json(click.ParamType[Any]):
    """A JSON document; "-" reads it from standard input. Integers keep all their digits."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        text = sys.stdin.read() if value == "-" else value
        try:
            return json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            self.fail(f"not JSON: {error}", param, ctx)


class OrNone(click.ParamType[Any]):
    """A value of another type, or "none": back to what holds when it is not given."""

    def __init__(self, inner: click.ParamType[Any]) -> None:
        self._inner, self.name = inner, f"{inner.name}|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return NONE if value in ("none", NONE) else self._inner.convert(value, param, ctx)


class _None:
    """The word "none" as it was typed; an option that was not given is None."""

    def __repr__(self) -> str:
        return "none"


NONE = _None()
DURATION, DURATION_OR_ZERO, MOMENT, MOMENT_OR_AGO, JSON = (
    Duration(), Duration(allow_zero=True), Moment(), Moment(ago=True), Json()
)  # fmt: skip


def comma_list(values: tuple[str, ...]) -> tuple[str, ...] | None:
    """`--queue a,b --queue c` as (a, b, c); None when there is nothing in it."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip()) or None
