"""In which order a worker serves its lanes. A lane is a (queue, priority, tenant) with something to do.

Between priorities: the oldest *virtual deadline* first, `first_due + priority × ageing` (earliest deadline first). So
urgent work overtakes, but only for so long: what becomes due later than p × ageing after a run of priority p earns no
position before it, however endless the flow. With `ageing` 0 priority is strict.

Between tenants of one queue and priority: round robin. The positions that a group of lanes earns by its deadlines are
dealt out to its tenants in turn, so a tenant with one run does not wait behind another's ten thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, Protocol, TypeVar

_MOST_PARTS = 8
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


class Part(NamedTuple, Generic[L]):
    """Lanes to claim from together. `share`: among how many lanes the room is divided. `whole`: nobody else of their priority comes later,
    so that what some of them leave is the others', before anybody of a lower priority gets it. `limited`: by a limited claim."""

    lanes: list[L]
    share: int
    whole: bool
    limited: bool


def parts(lanes: Sequence[L], limited: Callable[[L], bool]) -> list[Part[L]]:
    """The claims to make from `lanes` (as `order_lanes` gives them), one after the other while there is room.

    Lanes of one priority that follow each other are one part, but those of limited tenants, whose claim is another statement, are a part of
    their own, behind the others: they get their share all the same, as nobody takes more than its own share before all have had theirs.
    After a few parts the rest is taken together: where priorities alternate, ageing has brought them close.
    """
    total = Counter(lane.priority for lane in lanes)
    found: list[Part[L]] = []
    begin = 0
    for end in range(1, len(lanes) + 1):
        crowded = len(found) >= _MOST_PARTS
        if end < len(lanes) and (crowded or lanes[end].priority == lanes[begin].priority):
            continue
        members = lanes[begin:end]
        for kind in (False, True):
            if some := [lane for lane in members if limited(lane) is kind]:
                share = total[members[0].priority]
                found.append(Part(some, share, len(some) == share, kind))
        begin = end
    return found


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
