"""What comes out: one JSON document, or text for people (drawn by rich on a terminal, aligned columns elsewhere)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec

from fleetcron.cli.settings import Settings
from fleetcron.durations import format_duration
from fleetcron.model import Schedule, State
from fleetcron.run import Run
from fleetcron.triggers.base import rfc3339

# What would move the cursor, colour the screen or worse: texts of jobs are shown to operators.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_COLOURS = {
    State.RUNNING: "cyan", State.RETRYING: "yellow", State.SUCCEEDED: "green", State.FAILED: "red", State.MISSED: "red",
    State.EXPIRED: "red",
}  # fmt: skip


def emit(settings: Settings, value: Any, human: Callable[[], None]) -> None:
    """Print `value` as JSON if that was asked for, else call `human`."""
    if settings.json:
        click.echo(to_json(value))
    else:
        human()


def to_json(value: Any) -> bytes:
    """UTF-8, whatever the terminal speaks. Times are RFC 3339 in UTC, durations seconds, integers exact."""
    return json.dumps(value, default=_plain, ensure_ascii=False, indent=2).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    if isinstance(value, Run):
        return value.to_dict()
    if isinstance(value, Schedule):
        return _fields(value) | {"payload": msgspec.json.decode(value.payload)}
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, datetime):
        return rfc3339(value.astimezone(UTC))
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return int(seconds) if seconds.is_integer() else seconds
    if hasattr(value, "to_dict"):  # a trigger
        return value.to_dict()
    raise TypeError(f"{value!r} has no JSON form")


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────────


def clean(text: str) -> str:
    """Text that cannot act on a terminal: control characters are shown, not sent."""
    text = _CONTROL.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}", text
    )
    return text.encode("utf-8", "backslashreplace").decode()


def local(moment: datetime) -> str:
    """On this machine's clock: 2026-03-29 03:00:00 CEST."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def local_and_utc(moment: datetime | None) -> str:
    """2026-03-29 03:00:00 CEST (01:00:00 UTC)."""
    if moment is None:
        return "-"
    here = moment.astimezone()
    text = local(moment)
    if here.utcoffset():
        there = moment.astimezone(UTC)
        text += there.strftime(" (%H:%M:%S UTC)" if there.date() == here.date() else " (%Y-%m-%d %H:%M:%S UTC)")
    return text


def cell(value: Any) -> str:
    """One value in a table: a single line."""
    match value:
        case None | "" | ():
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return local(value)
        case timedelta():
            return format_duration(value)
        case list() | tuple():
            return ", ".join(map(cell, value)) or "-"
    return clean(" ".join(str(value).split()))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Rows under their columns; `empty` when there are none."""
    found = [tuple(row) for row in rows]
    if not found:
        click.echo(empty)
    elif sys.stdout.isatty():
        _draw(columns, found)
    else:
        texts = [tuple(columns), *(tuple(map(cell, row)) for row in found)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        for text in texts:
            click.echo("  ".join(part.ljust(width) for part, width in zip(text, widths, strict=True)).rstrip())


def _draw(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich import box  # lazy: 60 ms, and only terminals need it
    from rich.console import Console  # lazy: as above
    from rich.table import Table  # lazy: as above
    from rich.text import Text  # lazy: as above

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(
            *(Text(cell(value), style=_COLOURS.get(value, "") if isinstance(value, State) else "") for value in row)
        )
    Console(highlight=False).print(drawn)


def fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """`name  value` lines; names whose value is None are left out."""
    found = [(name, value) for name, value in pairs if value is not None]
    width = max(len(name) for name, _ in found)
    for name, value in found:
        click.echo(f"{name.ljust(width)}  {value if isinstance(value, str) else cell(value)}")


def block(title: str, text: str) -> None:
    """A titled text of several lines, indented."""
    click.echo(f"\n{title}")
    for line in clean(text).splitlines():
        click.echo(f"  {line}")


def more(count: int, following: Any) -> None:
    """Say on stderr that a list goes on."""
    if following is not None:
        click.echo(f"({count} shown; more with --after {following})", err=True)
