"""In which order a worker serves its lanes. A lane is a (queue, priority, tenant) with something to do.

Between priorities: the oldest *virtual deadline* first, `first_due + priority × ageing` (earliest deadline first). So
urgent work overtakes, but only for so long: what becomes due later than p × ageing after a run of priority p earns no
position before it, however endless the flow. With `ageing` 0 priority is strict.

Between tenants of one queue and priority: round robin. The positions that a group of lanes earns by its deadlines are
dealt out to its tenants in turn, so a tenant with one run does not wait behind another's ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

Group = tuple[str, int]
"""Queue and priority."""


class LaneLike(Protocol):
    """Anything with a lane's attributes, e.g. `store.protocol.Lane`."""

    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def tenant(self) -> str: ...
    @property
    def first_due(self) -> datetime: ...


L = TypeVar("L", bound=LaneLike)


def order_lanes(lanes: Sequence[L], *, ageing: timedelta, cursor: Mapping[Group, str]) -> list[L]:
    """`lanes`, first served first. `cursor`: per queue and priority the tenant served last (see `advance`)."""
    groups: dict[Group, list[L]] = {}
    for lane in lanes:
        groups.setdefault((lane.queue, lane.priority), []).append(lane)
    turns = {group: iter(_rotated(members, cursor.get(group))) for group, members in groups.items()}
    if len(turns) == 1:  # the usual case, and then deadlines decide nothing
        return [lane for turn in turns.values() for lane in turn]

    def deadline(lane: L) -> tuple[int, datetime, int, str]:
        if ageing:
            return 0, lane.first_due + lane.priority * ageing, lane.priority, lane.queue
        return lane.priority, lane.first_due, lane.priority, lane.queue

    return [next(turns[lane.queue, lane.priority]) for lane in sorted(lanes, key=deadline)]


def advance(cursor: Mapping[Group, str], served: Iterable[LaneLike]) -> dict[Group, str]:
    """The cursor after `served`, the lanes that gave work, in the order in which they were served."""
    return {**cursor, **{(lane.queue, lane.priority): lane.tenant for lane in served}}


def _rotated(lanes: list[L], last: str | None) -> list[L]:
    """By tenant, beginning with the one after `last`; that one need not exist any more."""
    lanes = sorted(lanes, key=lambda lane: lane.tenant)
    if last is None:
        return lanes
    begin = sum(lane.tenant <= last for lane in lanes)
    return lanes[begin:] + lanes[:begin]
