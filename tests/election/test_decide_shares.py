"""The share of a node: even, stable, and the same for everybody who looks at the same facts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcron.decide.shares import quotas, share

LEADS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 64), min_size=1)


@given(leads=LEADS, shards=st.integers(0, 100))
def test_quotas_are_even_and_complete(leads: dict[str, int], shards: int) -> None:
    found = quotas(leads, shards)
    assert sum(found.values()) == shards and max(found.values()) - min(found.values()) <= 1
    assert found == quotas(dict(reversed(leads.items())), shards), "whatever the order of the facts"
    assert all(found[a] >= found[b] for a in leads for b in leads if leads[a] > leads[b]), "who has more keeps more"


def settle(leaders: dict[int, str | None], nodes: list[str], order: random.Random) -> int:
    """Let the nodes act on fresh facts, one after the other in any order, until nothing moves; returns how many shards moved."""
    moved = 0
    for _ in range(100):
        before = dict(leaders)
        for me in order.sample(nodes, len(nodes)):
            todo = share(me, nodes, leaders)
            for shard in todo.give:
                leaders[shard] = None
            for shard in order.sample(todo.free, min(todo.want, len(todo.free))):
                leaders[shard] = me
                moved += 1
        if leaders == before:
            return moved
    raise AssertionError("it never settles")


@given(
    shards=st.integers(1, 64),
    nodes=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_shares_settle_evenly_and_then_nothing_moves(shards: int, nodes: int, seed: int) -> None:
    order = random.Random(seed)
    names = [f"n{i}" for i in range(nodes)]
    leaders: dict[int, str | None] = {shard: order.choice([*names, None]) for shard in range(shards)}
    settle(leaders, names, order)
    counts = [list(leaders.values()).count(name) for name in names]
    assert sum(counts) == shards and max(counts) - min(counts) <= 1
    assert settle(leaders, names, order) == 0
    # A crash moves what the dead node led, and at most one more shard a node.
    dead = names.pop()
    if names:
        orphans = [shard for shard, leader in leaders.items() if leader == dead]
        leaders |= dict.fromkeys(orphans)
        assert settle(leaders, names, order) <= len(orphans) + nodes
    # A join moves what the newcomer is to have, and no more than that is taken from anybody.
    names.append("new")
    assert settle(leaders, names, order) <= shards // len(names) + 1 + nodes


def test_sixty_four_shards_on_three_nodes() -> None:
    leaders: dict[int, str | None] = dict.fromkeys(range(64))
    settle(leaders, ["a", "b", "c"], random.Random(1))
    assert sorted(list(leaders.values()).count(name) for name in "abc") == [21, 21, 22]


def test_the_highest_shards_are_given_up() -> None:
    """What runs once for all runs on the leader of the lowest shard: it should not move without need."""
    leaders: dict[int, str | None] = dict.fromkeys(range(4), "a")
    assert share("a", ["a", "b"], leaders).give == (2, 3)


def test_who_is_not_counted_gets_nothing() -> None:
    leaders: dict[int, str | None] = {0: None, 1: "b"}
    todo = share("a", ["b"], leaders, overdue=[0])
    assert (todo.give, todo.want) == ((), 0)


def test_what_has_been_free_for_long_is_anybody_s() -> None:
    """b has a right to shard 1, and does not take it."""
    leaders: dict[int, str | None] = {0: "a", 1: None}
    assert share("a", ["a", "b"], leaders).want == 0
    assert share("a", ["a", "b"], leaders, overdue=[1]).want == 1


@pytest.mark.parametrize("nodes", [[], ["a"]])
def test_without_shards_there_is_nothing_to_do(nodes: list[str]) -> None:
    assert share("a", nodes, {}) == share("a", nodes, {}, overdue=[1])
