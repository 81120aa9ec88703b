"""Leaders of shards: one a term, and terms only rise."""

from __future__ import annotations

import asyncio

import pytest

from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import LEASE, START, Clock, at, info, lead, second


async def test_the_first_to_ask_leads(store: Store, clock: Clock) -> None:
    (nobody,) = await store.leaders()
    assert (nobody.shard, nobody.node, nobody.term, nobody.since) == (0, None, 0, None)
    assert await store.campaign(0, info("a", host="alpha", pid=12), LEASE) == 1
    (leader,) = await store.leaders()
    assert (leader.node, leader.host, leader.pid, leader.term, leader.since) == ("a", "alpha", 12, 1, START)


async def test_nobody_takes_over_while_somebody_leads(store: Store, clock: Clock) -> None:
    await lead(store, node="a")
    clock.advance(14.999999)
    assert await store.campaign(0, info("b"), LEASE) is None
    assert await store.campaign(0, info("a"), LEASE) is None  # not even the leader itself: it renews
    clock.advance(0.000002)
    assert await store.campaign(0, info("b"), LEASE) == 2
    assert (await store.leaders())[0].node == "b"


async def test_an_expired_leader_is_shown_as_none(store: Store, clock: Clock) -> None:
    await lead(store, node="a")
    clock.advance(15)
    (leader,) = await store.leaders()
    assert (leader.node, leader.term) == (None, 1)


async def test_renewing_keeps_the_term(store: Store, clock: Clock) -> None:
    term = await lead(store, node="a")
    for _ in range(10):
        clock.advance(10)
        assert await store.renew(0, "a", term, LEASE) is True
        assert await store.campaign(0, info("b"), LEASE) is None
    assert (await store.leaders())[0].since == START


async def test_a_leadership_that_is_over_is_not_renewed(store: Store, clock: Clock) -> None:
    """Case C26: after a long sleep, no error and no leadership either."""
    term = await lead(store, node="a")
    clock.advance(30)
    assert await store.renew(0, "a", term, LEASE) is False
    assert await store.resign(0, "a", term) in (True, False)
    assert await store.campaign(0, info("a"), LEASE) == term + 1


async def test_resigning_makes_way_at_once(store: Store) -> None:
    term = await lead(store, node="a")
    assert await store.resign(0, "a", term) is True
    (leader,) = await store.leaders()
    assert (leader.node, leader.host, leader.pid) == (None, None, None)
    assert await store.renew(0, "a", term, LEASE) is False
    assert await store.campaign(0, info("b"), LEASE) == term + 1


@pytest.mark.parametrize("call", ["renew", "resign"])
async def test_an_older_term_of_the_same_node_is_refused(store: Store, clock: Clock, call: str) -> None:
    """Case C24: a delayed message of term 1 must not touch term 3."""
    assert await lead(store, node="a") == 1
    clock.advance(20)
    assert await lead(store, node="b") == 2
    clock.advance(20)
    assert await lead(store, node="a") == 3
    for term in (1, 2, 4):
        answer = await (store.renew(0, "a", term, second(1000)) if call == "renew" else store.resign(0, "a", term))
        assert answer is False
    (leader,) = await store.leaders()
    assert (leader.node, leader.term) == ("a", 3)
    clock.advance(14)
    assert await store.campaign(0, info("b"), LEASE) is None  # nobody made way
    clock.advance(2)
    assert await store.campaign(0, info("b"), LEASE) == 4  # and nobody prolonged it


@pytest.mark.parametrize("call", ["renew", "resign"])
async def test_another_node_is_refused(store: Store, call: str) -> None:
    """Two processes of one host are two nodes: case C21."""
    term = await lead(store, node="a")
    answer = await (store.renew(0, "b", term, LEASE) if call == "renew" else store.resign(0, "b", term))
    assert answer is False
    assert (await store.leaders())[0].node == "a"


async def test_each_shard_has_a_leader_of_its_own(store: Store) -> None:
    assert await store.renew(7, "a", 1, LEASE) is False
    assert await store.resign(7, "a", 1) is False
    assert await store.campaign(7, info("a"), LEASE) == 1  # the first ever: nobody needs to set shards up
    assert await store.campaign(7, info("b"), LEASE) is None
    assert await store.campaign(0, info("b"), LEASE) == 1
    assert await store.renew(0, "a", 1, LEASE) is False
    assert [(leader.shard, leader.node) for leader in await store.leaders()] == [(0, "b"), (7, "a")]


async def test_the_first_campaign_for_a_shard_has_one_winner(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    for shard in range(1, 20):
        answers = await asyncio.gather(
            *(s.campaign(shard, info(f"n{i}"), LEASE) for i, s in enumerate((store, other, store)))
        )
        assert sorted(answers, key=str) == [1, None, None]


async def test_one_winner_of_five_in_each_of_two_hundred_rounds(
    store: Store, open_store: OpenStore, clock: Clock
) -> None:
    """Case C23: judged by what the database wrote, not by what it attempted."""
    stores = [store, *[await open_store() for _ in range(2)]]
    for round_ in range(1, 201):
        answers = await asyncio.gather(*(stores[i % 3].campaign(0, info(f"node-{i}"), LEASE) for i in range(5)))
        (winner,) = [i for i, term in enumerate(answers) if term is not None]
        assert answers[winner] == round_
        (leader,) = await store.leaders()
        assert (leader.node, leader.term) == (f"node-{winner}", round_)
        clock.advance(15.1)


async def test_a_renewal_that_races_a_takeover(store: Store, open_store: OpenStore, clock: Clock) -> None:
    """At the last instant of a term the leader may still win, and then nobody else does."""
    other = await open_store()
    term = await lead(store, node="node-0")
    won = {"renewed": 0, "taken": 0}
    for round_ in range(60):
        holder = f"node-{round_}" if won["taken"] == round_ else (await store.leaders())[0].node or "?"
        clock.advance(15 if round_ % 3 else 15.1)
        renewed, taken = await asyncio.gather(
            store.renew(0, holder, term, LEASE), other.campaign(0, info(f"node-{round_ + 1}"), LEASE)
        )
        if round_ % 3:
            assert (renewed, taken) == (True, None)  # the instant itself belongs to the leader
            won["renewed"] += 1
        else:
            assert (renewed, taken) == (False, term + 1)
            term += 1
            won["taken"] += 1
    assert won == {"renewed": 40, "taken": 20}
    assert (await store.leaders())[0].since is not None
    assert at(0) < clock()
