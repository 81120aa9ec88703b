"""The statements of this folder, ready for the driver.

They number their parameters (?1, ?2 …), so that one can be named twice; but some versions of Python (3.12.0 to
3.12.3) take a numbered parameter for a named one and warn at every call. So the driver gets plain question marks,
and the values in the order, and as often, as these stand in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from fleetcron.store.sql import load

_NUMBERED = re.compile(r"\?(\d+)")


class Statement(msgspec.Struct, frozen=True):
    """`pick` turns the numbered values into those for the question marks; None where they are the same."""

    sql: str
    pick: Callable[[Sequence[Any]], Sequence[Any]] | None


Statements = Mapping[str, Statement]


def load_statements() -> Statements:
    """All statements of `sql/`, by file name."""
    return {name: _statement(text) for name, text in load(__package__).items()}


def _statement(text: str) -> Statement:
    order = [int(number) - 1 for number in _NUMBERED.findall(text)]
    assert len(order) == text.count("?"), "every parameter has a number, and no text holds a question mark"
    sql = _NUMBERED.sub("?", text)
    if order == list(range(len(order))):
        return Statement(sql, None)
    if len(order) == 1:
        return Statement(sql, lambda values: (values[order[0]],))
    return Statement(sql, itemgetter(*order))
