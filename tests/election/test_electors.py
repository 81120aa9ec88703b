"""What every elector with a server of its own promises, on the real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from fleetcron.election import Elector
from tests.election.conftest import StartElector
from tests.election.support import LONGEST, TTL, ElectorServer, until
from tests.support.proxy import Proxy

SHARDS = range(6)
ROUNDS = 20


def held(elector: Elector) -> set[int]:
    return {shard for shard in SHARDS if elector.nominated(shard)}


async def test_a_shard_has_one_nominee_and_a_limit_is_kept(
    scheme: str, shared_url: Callable[[str], str], elector: StartElector
) -> None:
    url = shared_url(scheme)
    nodes = [await elector(url, name) for name in ("a", "b", "c")]
    for node in nodes:
        assert not node.nominated(0) and not node.reached()
        node.stand((), SHARDS, 2)
    await until(lambda: set().union(*map(held, nodes)) == set(SHARDS), what="everything being held")
    assert [len(held(node)) for node in nodes] == [2, 2, 2]
    assert all(node.reached() and "is reached" in node.state().words() for node in nodes)


async def test_C33_what_is_given_up_goes_to_who_waits(
    scheme: str, shared_url: Callable[[str], str], elector: StartElector
) -> None:
    """Who waits for many ttls still waits in earnest."""
    url = shared_url(scheme)
    news = asyncio.Event()
    one, two = await elector(url, "one"), await elector(url, "two", changed=news.set)
    one.stand((), SHARDS, 6)
    await until(lambda: held(one) == set(SHARDS))
    two.stand((), (4, 5), 2)
    await asyncio.sleep(2 * TTL)
    assert held(one) == set(SHARDS) and held(two) == set()
    news.clear()
    one.stand((0, 1, 2, 3), (), 0)
    took = await until(lambda: held(two) == {4, 5}, what="the hand-over")
    assert took < TTL and held(one) == {0, 1, 2, 3}
    assert news.is_set(), "the node was told, and need not ask"


async def test_who_leaves_in_order_is_succeeded_at_once(
    scheme: str, shared_url: Callable[[str], str], elector: StartElector
) -> None:
    url = shared_url(scheme)
    one, two = await elector(url, "one"), await elector(url, "two")
    one.stand((), SHARDS, 6)
    await until(lambda: held(one) == set(SHARDS))
    two.stand((), SHARDS, 6)
    await one.stop()
    assert held(one) == set()
    assert await until(lambda: held(two) == set(SHARDS)) < TTL


async def test_C30_an_elector_that_is_away_at_the_start_and_later_again(
    server: ElectorServer, elector: StartElector
) -> None:
    """The pause between two tries stays below the ttl, however long the outage."""
    await asyncio.to_thread(server.stop)
    nodes = [await elector(server.url, name) for name in ("a", "b")]
    for node in nodes:
        node.stand((), SHARDS, 3)
    await until(lambda: not any("not reached yet" in node.state().words() for node in nodes), what="the first try")
    for node in nodes:
        assert not node.reached() and not held(node)
        assert f"127.0.0.1:{server.port} is not reached, so this node is a follower" in node.state().words()
    await asyncio.sleep(TTL)
    for node in nodes:
        away = node.state()
        assert away.error and away.retry_in is not None and timedelta(0) < away.retry_in <= timedelta(seconds=TTL / 2)
        assert away.since < datetime.now(UTC) - timedelta(seconds=TTL / 2), "the first moment, not the last try"
    await asyncio.to_thread(server.start)
    await until(lambda: [len(held(node)) for node in nodes] == [3, 3], within=2 * TTL + 3, what="the nominations")
    await asyncio.to_thread(server.stop)
    gone = await until(lambda: not any(held(node) for node in nodes), what="stepping down")
    assert gone < TTL, "a nomination is trusted for less than the ttl after the last answer"
    await asyncio.to_thread(server.start)
    # A restarted server may still know the keys of before, and waits for their end.
    await until(
        lambda: set().union(*map(held, nodes)) == set(SHARDS), within=LONGEST["etcd"] + 10, what="new nominations"
    )


@pytest.mark.parametrize("fault", ["cut", "swallowed", "frozen"])
async def test_C35_a_nominee_that_is_cut_off_knows_it_before_the_others(
    server: ElectorServer, elector: StartElector, scheme: str, fault: str
) -> None:
    """The first nominee's link goes; at no moment are both nominated."""
    async with Proxy("127.0.0.1", server.port) as proxy:
        one = await elector(server.url.replace(str(server.port), str(proxy.port)), "one")
        one.stand((), (0,), 1)
        await until(lambda: one.nominated(0))
        two = await elector(server.url, "two")
        two.stand((), (0,), 1)
        await until(two.reached)
        cut = time.monotonic()
        match fault:
            case "cut":
                proxy.refuse()
            case "swallowed":
                proxy.blackhole()
            case "frozen":  # the server itself: both are cut off, and then both come back
                server.freeze()
        both = 0
        over = None
        while time.monotonic() < cut + LONGEST[scheme] + 3 * TTL:
            first, second = one.nominated(0), two.nominated(0)
            both += first and second
            if not first and over is None:
                over = time.monotonic() - cut
            if second:
                break
            if fault == "frozen" and time.monotonic() > cut + 2 * TTL:
                server.thaw()
                break
            await asyncio.sleep(0.002)
        assert both == 0, "two nominees at once"
        assert over is not None and over < TTL, f"trusted for {over} s"
        if fault == "frozen":
            await until(lambda: one.nominated(0) or two.nominated(0), what="a nominee after the thaw")
            assert not (one.nominated(0) and two.nominated(0))
        else:
            assert two.nominated(0), "nobody has taken over"
            await proxy.heal()
            await until(one.reached, what="coming back")
            assert not one.nominated(0)
        await one.stop()  # before its proxy


async def test_C26_a_process_that_slept_past_its_time(
    scheme: str, shared_url: Callable[[str], str], elector: StartElector
) -> None:
    """The whole loop stands still for longer than a ttl, as in a suspended laptop: nothing is believed when it wakes."""
    url = shared_url(scheme)
    one = await elector(url, "one")
    one.stand((), SHARDS, 6)
    await until(lambda: held(one) == set(SHARDS))
    time.sleep(1.5 * TTL)
    assert held(one) == set()
    one.stand((), SHARDS, 6)
    await until(lambda: held(one) == set(SHARDS), what="standing again")


async def test_C23_one_nominee_of_five(scheme: str, shared_url: Callable[[str], str], elector: StartElector) -> None:
    """Five nodes stand at once for a shard that nobody has, again and again: exactly one is nominated, at every look."""
    url = shared_url(scheme)
    crew = [await elector(url, f"n{number}") for number in range(5)]
    await until(lambda: all(node.reached() for node in crew))
    winners = set()
    for round_ in range(ROUNDS):
        for place in range(5):
            crew[(round_ + place) % 5].stand((), (0,), 1)
        await until(lambda: any(node.nominated(0) for node in crew), what="a nominee")
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            nominees = [place for place, node in enumerate(crew) if node.nominated(0)]
            assert len(nominees) == 1
            await asyncio.sleep(0.002)
        winners.update(nominees)
        for node in crew:
            node.stand((), (), 0)
        await until(lambda: not any(node.nominated(0) for node in crew), what="giving it up")
    assert len(winners) > 1, "it is not always the same one"


async def test_C24_a_late_release_frees_nobody_else_s_key(
    scheme: str, server: ElectorServer, elector: StartElector
) -> None:
    """A holds the key, is cut off, and loses it to B. When its path is back A gives up what it once held: B keeps it, and C gets nothing."""
    async with Proxy("127.0.0.1", server.port) as proxy:
        a = await elector(server.url.replace(str(server.port), str(proxy.port)), "a")
        a.stand((), (0,), 1)
        await until(lambda: a.nominated(0))
        b, c = await elector(server.url, "b"), await elector(server.url, "c")
        b.stand((), (0,), 1)
        proxy.blackhole()
        a.stand((), (), 0)  # its release is on its way for as long as the path swallows everything
        await until(lambda: b.nominated(0), within=LONGEST[scheme] + 5, what="the take-over")
        c.stand((), (0,), 1)
        await proxy.heal()
        await a.stop()
        end = time.monotonic() + 1.5 * TTL
        while time.monotonic() < end:
            assert b.nominated(0) and not c.nominated(0)
            await asyncio.sleep(0.01)


async def test_fleets_with_other_prefixes_do_not_meet(
    scheme: str, shared_url: Callable[[str], str], elector: StartElector
) -> None:
    one, two = await elector(shared_url(scheme), "one"), await elector(shared_url(scheme), "two")
    for node in (one, two):
        node.stand((), (0,), 1)
    await until(lambda: one.nominated(0) and two.nominated(0))
