"""Priorities with ageing between groups of lanes, round robin between tenants inside one."""

from __future__ import annotations

from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcron.decide.fairness import advance, order_lanes

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND, MINUTE, OFF = timedelta(seconds=1), timedelta(minutes=1), timedelta(0)


class Lane(NamedTuple):
    queue: str
    priority: int
    tenant: str
    first_due: datetime


def lane(tenant: str, seconds: float = 0, priority: int = 5, queue: str = "default") -> Lane:
    return Lane(queue, priority, tenant, NOON + seconds * SECOND)


def tenants(lanes: list[Lane]) -> str:
    return "".join(one.tenant for one in lanes)


def test_the_tenant_served_last_goes_to_the_end() -> None:
    lanes = [lane("c", 1), lane("a", 3), lane("b", 2)]
    assert tenants(order_lanes(lanes, ageing=MINUTE, cursor={})) == "abc"
    assert tenants(order_lanes(lanes, ageing=MINUTE, cursor={("default", 5): "a"})) == "bca"
    assert tenants(order_lanes(lanes, ageing=MINUTE, cursor={("default", 5): "c"})) == "abc"
    assert tenants(order_lanes(lanes, ageing=MINUTE, cursor={("default", 5): "bb"})) == "cab"  # gone meanwhile
    assert tenants(order_lanes(lanes, ageing=MINUTE, cursor={("other", 5): "a", ("default", 4): "a"})) == "abc"


def test_priority_is_strict_without_ageing() -> None:
    lanes = [lane("old", -(10**6), priority=1), lane("new", 0, priority=0), lane("x", -5, priority=0, queue="q")]
    assert [one.tenant for one in order_lanes(lanes, ageing=OFF, cursor={})] == ["x", "new", "old"]


def test_ageing_decides_between_priorities() -> None:
    low, high = lane("low", 0, priority=3), lane("high", 179, priority=0)
    assert order_lanes([low, high], ageing=MINUTE, cursor={}) == [high, low]
    late = lane("high", 181, priority=0)
    assert order_lanes([low, late], ageing=MINUTE, cursor={}) == [low, late]


def test_the_cursor_moves_with_what_was_served() -> None:
    served = [lane("a"), lane("b"), lane("z", priority=0)]
    moved = advance({("default", 5): "q", ("other", 5): "k"}, served)
    assert moved == {("default", 5): "b", ("default", 0): "z", ("other", 5): "k"}


# ── C89: one tenant's burst ──────────────────────────────────────────────────────────────────────────────────────────


def test_c89_a_burst_does_not_hold_up_another_tenant() -> None:
    """A has 1,000 old runs, B one new one; another queue's lane has its deadline between them."""
    lanes = [lane("a", -1000), lane("b", 0), lane("o", -500, queue="other")]
    first = order_lanes(lanes, ageing=MINUTE, cursor={("default", 5): "a"})
    assert first[0].tenant == "b"


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(0, 5))
def test_c89_every_tenant_is_served_within_one_round(backlogs: list[int], start: int) -> None:
    left = {chr(ord("a") + n): size for n, size in enumerate(backlogs)}
    cursor = {("default", 5): chr(ord("a") + start)}
    turns: list[str] = []
    while any(left.values()):
        lanes = [lane(tenant, -size) for tenant, size in left.items() if size]
        head = order_lanes(lanes, ageing=MINUTE, cursor=cursor)[0]
        cursor = advance(cursor, [head])
        left[head.tenant] -= 1
        turns.append(head.tenant)
    counts = Counter(turns)
    assert [counts[chr(ord("a") + n)] for n in range(len(backlogs))] == backlogs
    shortest = min(backlogs)
    for rounds in range(shortest):  # as long as all have work, each round serves each once
        assert len(set(turns[rounds * len(backlogs) : (rounds + 1) * len(backlogs)])) == len(backlogs)


# ── Properties ───────────────────────────────────────────────────────────────────────────────────────────────────────

lane_sets = st.lists(
    st.builds(
        lane,
        st.sampled_from("abcdef"),
        st.integers(-600, 600),
        st.integers(0, 9),
        st.sampled_from(["default", "other"]),
    ),
    max_size=30,
    unique_by=lambda one: one[:3],
)
cursors = st.dictionaries(
    st.tuples(st.sampled_from(["default", "other"]), st.integers(0, 9)), st.sampled_from("abcdefg"), max_size=9
)


@settings(max_examples=200)
@given(lane_sets, st.sampled_from([OFF, SECOND, MINUTE]), cursors)
def test_no_lane_is_lost_and_positions_follow_deadlines(
    lanes: list[Lane], ageing: timedelta, cursor: dict[tuple[str, int], str]
) -> None:
    ordered = order_lanes(lanes, ageing=ageing, cursor=cursor)
    assert sorted(ordered) == sorted(lanes)

    def deadline(one: Lane) -> tuple[int, datetime]:
        return (0, one.first_due + one.priority * ageing) if ageing else (one.priority, one.first_due)

    groups = {one[:2] for one in lanes}
    for group in groups:
        inside = [one.tenant for one in ordered if one[:2] == group]
        last = cursor.get(group)
        expected = sorted(inside)
        if last is not None:
            expected = [t for t in expected if t > last] + [t for t in expected if t <= last]
        assert inside == expected
        # The group's k-th position has nothing of others before it that is due later than its own k-th deadline.
        earned = sorted(deadline(one) for one in lanes if one[:2] == group)
        places = [n for n, one in enumerate(ordered) if one[:2] == group]
        for mine, place in zip(earned, places, strict=True):
            others_before = sum(one[:2] != group for one in ordered[:place])
            assert others_before <= sum(one[:2] != group and deadline(one) <= mine for one in lanes)


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 4))
def test_an_endless_urgent_flow_delays_a_low_run_by_priority_times_ageing(low: int, ageing: int, crowd: int) -> None:
    """One claim a second, and as much new urgent work, from several tenants: no slack at all."""
    urgent: dict[str, deque[int]] = {chr(ord("a") + n): deque() for n in range(crowd)}
    cursor: dict[tuple[str, int], str] = {}
    bound = low * ageing
    for second in range(bound + 2):
        urgent[chr(ord("a") + second % crowd)].append(second)
        lanes = [lane(tenant, due[0], priority=0) for tenant, due in urgent.items() if due]
        lanes.append(lane("low", 0, priority=low))
        head = order_lanes(lanes, ageing=ageing * SECOND, cursor=cursor)[0]
        cursor = advance(cursor, [head])
        if head.tenant == "low":
            assert second <= bound + 1
            return
        urgent[head.tenant].popleft()
    raise AssertionError("starved")
