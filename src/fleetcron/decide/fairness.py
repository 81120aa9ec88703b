"""In which order a worker serves its lanes. A lane is a (queue, priority, tenant) with something to do.

Between priorities: the oldest *virtual deadline* first, `first_due + priority × ageing` (earliest deadline first). So
urgent work overtakes, but only for so long: what becomes due later than p × ageing after a run of priority p earns no
position before it, however endless the flow. With `ageing` 0 priority is strict. Backfills do not age: they come after all others, and have
a share of the claims instead (decide/backfill.py).

Between tenants of one queue and priority: round robin, a turn being as many runs as the tenant's weight. The positions that a
group of lanes earns by its deadlines are dealt out to its tenants in turn, so a tenant with one run does not wait behind
another's ten thousand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from fleetcron.model import LOWEST_PRIORITY

_MOST_TIERS = 8
Group = tuple[str, int]
"""Queue and priority."""
Turns = Mapping[Group, str]
"""The tenant of each that was served last: the turn is at the next one, by name."""


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


def order_lanes(lanes: Sequence[L], *, ageing: timedelta, cursor: Turns) -> list[L]:
    """`lanes`, first served first. `cursor`: per queue and priority the tenant served last (see `advance`)."""
    groups: dict[Group, list[L]] = {}
    for lane in lanes:
        groups.setdefault((lane.queue, lane.priority), []).append(lane)
    turns = {group: iter(_rotated(members, cursor.get(group))) for group, members in groups.items()}
    if len(turns) == 1:  # the usual case, and then deadlines decide nothing
        return [lane for turn in turns.values() for lane in turn]

    def deadline(lane: L) -> tuple[int, datetime, int, str]:
        if ageing:
            last = lane.priority > LOWEST_PRIORITY  # a backfill's
            return last, lane.first_due + lane.priority * ageing, lane.priority, lane.queue
        return lane.priority, lane.first_due, lane.priority, lane.queue

    return [next(turns[lane.queue, lane.priority]) for lane in sorted(lanes, key=deadline)]


class Tier(NamedTuple, Generic[L]):
    """Lanes of one priority to claim from together. `whole`: nobody else of their priority comes later, so that what some of them leave is
    the others', before anybody of a lower priority gets it."""

    lanes: list[L]
    whole: bool


def tiers(lanes: Sequence[L]) -> list[Tier[L]]:
    """`lanes` (as `order_lanes` gives them) by priority, to be served one tier after the other while there is room. After a few of them the
    rest is taken together: where priorities alternate so often, ageing has brought them close."""
    total = Counter(lane.priority for lane in lanes)
    found: list[Tier[L]] = []
    begin = 0
    for end in range(1, len(lanes) + 1):
        same = end < len(lanes) and (lanes[end].priority == lanes[begin].priority or len(found) >= _MOST_TIERS)
        if not same:
            members = list(lanes[begin:end])
            found.append(Tier(members, len(members) == total[members[0].priority]))
            begin = end
    return found


class Deal(NamedTuple):
    """How many runs each lane may give, and, when they all have: who has had a turn last (see `advance`), and whose turn is under way,
    with how much of it is used."""

    quanta: list[int]
    cursor: dict[Group, str]
    begun: dict[Group, tuple[str, int]]


def deal(
    lanes: Sequence[LaneLike], room: int, weight: Callable[[str], int], begun: Mapping[Group, tuple[str, int]]
) -> Deal:
    """`room` runs dealt out to `lanes`, in their order, round after round; a tenant's turn is as many as its weight. A turn that `room` ends
    is gone on with next time, so that weights hold also where there is room for one run at a time. Nothing is saved up: who has nothing
    waiting has no turn."""
    full = [max(weight(lane.tenant), 1) for lane in lanes]
    turns = list(full)
    for i, lane in enumerate(lanes):
        tenant, used = begun.get((lane.queue, lane.priority), ("", 0))
        if used and tenant == lane.tenant:
            turns[i] = max(full[i] - used, 1)
    quanta, cursor, rest = [0] * len(lanes), {}, room
    if room > sum(turns):
        rounds, rest = divmod(room - sum(turns), sum(full))
        quanta = [turn + rounds * more for turn, more in zip(turns, full, strict=True)]
        cursor = {(lane.queue, lane.priority): lane.tenant for lane in lanes}
        turns = full
    under_way: dict[Group, tuple[str, int]] = {}
    for i, lane in enumerate(lanes):
        if rest <= 0:
            break
        given = min(rest, turns[i])
        quanta[i] += given
        rest -= given
        if given == turns[i]:
            cursor[lane.queue, lane.priority] = lane.tenant
        else:
            under_way[lane.queue, lane.priority] = (lane.tenant, full[i] - turns[i] + given)
    return Deal(quanta, cursor, under_way)


def advance(cursor: Turns, served: Iterable[LaneLike]) -> dict[Group, str]:
    """The cursor after `served`, the lanes that gave work, in the order in which they were served."""
    return {**cursor, **{(lane.queue, lane.priority): lane.tenant for lane in served}}


def _rotated(lanes: list[L], last: str | None) -> list[L]:
    """By tenant, beginning with the one after `last`; that one need not exist any more."""
    by_tenant = attrgetter("tenant")
    lanes = sorted(lanes, key=by_tenant)
    if last is None:
        return lanes
    begin = bisect_right(lanes, last, key=by_tenant)
    return lanes[begin:] + lanes[:begin]
