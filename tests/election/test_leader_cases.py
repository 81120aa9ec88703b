"""The cases of the class leader (reliability.md) that need more than a store, by id.

C20, C26 and C29 also run under chaos (test_chaos); C23 and C24 are the stores' too (test_store, conformance); C23, C24, C26, C30, C33 and C35
the electors' (test_electors); C36 is in test_frozen, C29's health in test_state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import asyncpg
import psutil
import pytest

from fleetcron import Context, Every, Fleet
from fleetcron.clock import monotonic
from fleetcron.election import DatabaseElector, parse_elector
from fleetcron.election.etcd import EtcdElector
from fleetcron.errors import ConfigError
from fleetcron.node import Node, NodeOptions
from fleetcron.scheduler.contact import Contact
from fleetcron.scheduler.leadership import Leadership
from fleetcron.scheduler.ticker import Ticker
from fleetcron.store.factory import make_store
from tests.conformance.kit import Clock, info, job, look, put, schedule
from tests.election.conftest import StartElector
from tests.election.support import TTL, ElectorServer, Member, members, until
from tests.support.etcd import Etcd
from tests.support.processes import NodeProcess, started, wait_until
from tests.support.proxy import Proxy
from tests.support.redis import Redis

APP = "tests.crash.app:fleet"
LEASE = timedelta(seconds=15)
SOAK = pytest.mark.soak
"""What chaos shows for these electors too."""
ELECTORS = ["database", pytest.param("etcd", marks=SOAK), "zk", pytest.param("redis", marks=SOAK)]


@pytest.mark.parametrize("schedulers", [2, 5])
async def test_C20_schedulers_that_all_believe_that_they_lead(store_url: str, schedulers: int) -> None:
    """All of them hold the same, valid term: as wrong as it can get. A minute of ticks of one second is sixty runs."""
    clock = Clock()
    stores = [make_store(store_url, clock=clock) for _ in range(schedulers)]
    for store in stores:
        await store.open()
    try:
        await stores[0].put_jobs([job()])
        await put(stores[0], schedule("tick", Every(1), misfire="fire_all"))
        term = await stores[0].campaign(0, info("a"), timedelta(hours=1))
        assert term is not None
        tickers = []
        for store in stores:
            believes = Leadership(store, DatabaseElector(), info("a"), 0, 3600, Contact(store))
            believes.begin(term, monotonic())
            tickers.append(Ticker(store, believes, LEASE))
        for _ in range(60):
            await asyncio.gather(*(ticker.step() for ticker in tickers))
            clock.advance(1)
        ticks = await look(stores[0], "SELECT count(*), count(DISTINCT nominal_at) FROM run")
        # Up to the end of the minute after the one that began with the last step.
        assert ticks == [(119, 119)]
    finally:
        for store in stores:
            await store.close()


async def test_C21_three_schedulers_of_one_process_that_come_and_go(store_url: str) -> None:
    """One host, one pid, default identities: never two leaders, and each tick is one run."""
    await come_and_go(store_url, "database", ttl=0.6)


@pytest.mark.parametrize("elector", ["etcd", "zk", "redis"])
async def test_C21_the_same_with_an_elector(pg_url: str, elector: str, shared_url: Callable[[str], str]) -> None:
    await come_and_go(pg_url, shared_url(elector), ttl=TTL)


async def come_and_go(store_url: str, elector: str, ttl: float) -> None:
    crew = [Member(store_url, elector, ttl=ttl) for _ in range(3)]
    assert len({member.node for member in crew}) == 3
    came: list[Member] = []
    async with members(*crew, later=came):
        await crew[0].store.put_jobs([job()])
        await put(crew[0].store, schedule("tick", Every(1), misfire="fire_all"))
        end, terms, live = time.monotonic() + 2.5, set(), list(crew)
        while time.monotonic() < end:
            for _ in range(60):
                leading = [member for member in live if member.leads()]
                assert len(leading) <= 1
                terms.update((leader.term, leader.node) for leader in await crew[0].store.leaders() if leader.node)
                await asyncio.sleep(0.005)
            leaves = live.pop(0) if live[0] is not crew[0] else live.pop(1)  # its store is the one we look through
            await leaves.stop()
            live.append(Member(store_url, elector, ttl=ttl))
            came.append(live[-1])
            await live[-1].start()
        assert len({term for term, _ in terms}) == len(terms), "two nodes in one term"
        ticks = await look(crew[0].store, "SELECT count(*), count(DISTINCT nominal_at) FROM run")
        assert ticks[0][0] == ticks[0][1] > 0


@pytest.mark.parametrize("elector", ELECTORS)
async def test_C35_a_leader_whose_database_falls_silent(
    pg_url: str, elector: str, shared_url: Callable[[str], str]
) -> None:
    """Its packets are swallowed: it stops leading before its successor starts, at every look."""
    url = shared_url(elector)
    crew = [Member(pg_url, url) for _ in range(2)]
    async with members(*crew):
        await until(lambda: any(member.leads() for member in crew), what="a leader")
        first, second = sorted(crew, key=lambda member: not member.leads())
        first.proxy.blackhole()
        cut = time.monotonic()
        while not second.leads():
            assert time.monotonic() < cut + 3 * TTL + 2, "nobody took over"
            await asyncio.sleep(0.001)
        assert not first.leads()
        assert (await second.store.leaders())[0].term == 2
        await first.proxy.heal()


def test_C24_trust_counts_from_when_a_renewal_was_sent() -> None:
    """An answer that was under way for most of a ttl gives what is left of it, not a ttl."""
    believes = Leadership(
        make_store("sqlite:///:memory:"),
        DatabaseElector(),
        info("a"),
        0,
        1.0,
        Contact(make_store("sqlite:///:memory:")),
    )
    believes.begin(7, monotonic() - 0.95)
    assert believes.peek() is None and believes.term() is None, "the answer came too late to be of use"
    believes.begin(8, monotonic() - 0.5)
    assert believes.term() == believes.peek() == 8
    believes.renewed(monotonic() - 0.95)
    assert believes.term() is None
    assert believes.owes(), "the database may still grant it, and is told"


WATCH = """
CREATE TABLE public.written (what text, pid int);
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.written VALUES (TG_TABLE_NAME, pg_backend_pid()); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON fleetcron.run FOR EACH ROW EXECUTE FUNCTION public.note();
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON fleetcron.schedule FOR EACH ROW EXECUTE FUNCTION public.note();
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON fleetcron.shard FOR EACH ROW EXECUTE FUNCTION public.note();
"""


async def backends(connection: asyncpg.Connection[asyncpg.Record], pid: int) -> set[int]:
    """The database's processes that serve this process of ours."""
    ports = {link.laddr.port for link in psutil.Process(pid).net_connections("tcp")}
    rows = await connection.fetch("SELECT pid, client_port FROM pg_stat_activity WHERE datname = current_database()")
    return {row["pid"] for row in rows if row["client_port"] in ports}


@pytest.mark.crash
@pytest.mark.parametrize("elector", ELECTORS)
async def test_C26_C36_a_leader_that_slept_writes_nothing(
    pg_url: str, elector: str, shared_url: Callable[[str], str], tmp_path: Path
) -> None:
    """SIGSTOP for three ttls, SIGCONT: the database counts what the thawed process changes. Then it ends in order."""
    url = shared_url(elector)
    words = ["--role", "scheduler", "--elector", url, "--election-ttl", f"{TTL}s"]
    env = {"CRASH_POLICY": "fire_all"}
    nodes = [NodeProcess(pg_url, APP, tmp_path, *words, env=env, name=f"n{n}") for n in range(2)]
    with started(*nodes), Fleet(pg_url).blocking as fleet:
        wait_until(
            lambda: fleet.leaders()[0].node and all("is ready" in node.log.read_text() for node in nodes),
            what="a leader",
        )
        before = fleet.leaders()[0]
        sleeper, other = sorted(nodes, key=lambda node: node.pid != before.pid)
        connection = await asyncpg.connect(pg_url)
        try:
            await connection.execute(WATCH)
            sleeper.freeze()
            served = await backends(connection, sleeper.pid)
            await asyncio.sleep(0.2)  # what it had asked for is done, and was its right
            await connection.execute("TRUNCATE public.written")
            assert served
            frozen = time.monotonic()
            wait_until(lambda: fleet.leaders()[0].pid == other.pid, within=10, what="the successor")
            print(f"{elector}: succeeded after {time.monotonic() - frozen:.2f} s")
            await asyncio.sleep(max(0.0, frozen + 3 * TTL - time.monotonic()))
            sleeper.thaw()
            give_up_at = time.monotonic() + 1.5 * TTL
            while time.monotonic() < give_up_at:
                served |= await backends(connection, sleeper.pid)
                await asyncio.sleep(0.05)
            wrote = await connection.fetch("SELECT what, pid FROM public.written")
            assert [row["what"] for row in wrote if row["pid"] in served] == []
            assert [row["what"] for row in wrote if row["pid"] not in served], "the successor's are counted"
            assert fleet.leaders()[0].pid == other.pid
            other.kill()
            wait_until(lambda: fleet.leaders()[0].pid == sleeper.pid, within=10, what="the sleeper leading again")
            assert fleet.leaders()[0].term > before.term + 1
        finally:
            await connection.close()
        assert sleeper.stop() == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lease": 0}, "lease"),
        ({"lease": -1}, "lease"),
        ({"lease": "15s", "heartbeat": "15s"}, "at least 3 × heartbeat"),
        ({"election_ttl": 0}, "election_ttl"),
        ({"election_tll": "5s"}, "unknown option 'election_tll'"),
        ({"shards": 0}, "shards"),
        ({"elector": "consul://localhost"}, r"'consul://localhost' is not known; it is one of: database, etcd://"),
        ({"elector": "etcd"}, "is not known"),
        ({"elector": "etcd://"}, "host or host:port"),
        ({"elector": "etcd://a:b:c/x"}, "host or host:port"),
        ({"elector": "etcd://one:99999"}, "host or host:port"),
        ({"elector": "etcd://me@one:2379"}, "a user and a password"),
        ({"elector": "etcd://me:secret@one:2379,:1"}, r"etcd://me:\*\*\*@one"),
        ({"elector": "zk://me@one"}, "zk:// takes a user and a password"),
        ({"elector": "zk://:secret@one"}, "zk:// takes a user and a password"),
        ({"elector": "etcd://one/fleet?cacert=x"}, "unknown parameter 'cacert'; it takes none"),
        ({"elector": "redis://one/0?prefx=mine"}, "unknown parameter 'prefx'; allowed are prefix"),
        ({"elector": "redis://one,two"}, "takes one host"),
        ({"elector": "redis://one/fleet"}, "number of the Redis database"),
    ],
)
def test_C27_wrong_options_are_refused_at_the_start(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Fleet("sqlite:///:memory:", **options)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_C27_what_an_elector_s_address_says() -> None:
    etcd = parse_elector("etcd://me:p%40ss@one:1,[::1],three/my/fleet")
    assert etcd is not None
    assert (etcd.hosts, etcd.prefix, etcd.user, etcd.password) == (
        (("one", 1), ("::1", 2379), ("three", 2379)),
        "my/fleet",
        "me",
        "p@ss",
    )
    redis = parse_elector("redis://one/3?prefix=mine")
    assert redis is not None and (redis.hosts, redis.database, redis.prefix) == ((("one", 6379),), 3, "mine")
    zookeeper = parse_elector("zk://one,two:2182")
    assert zookeeper is not None and (zookeeper.hosts, zookeeper.prefix) == (
        (("one", 2181), ("two", 2182)),
        "fleetcron",
    )
    assert parse_elector("database") is None


@pytest.mark.parametrize(
    ("url", "module", "extra"), [("zk://h", "kazoo", "zookeeper"), ("redis://h", "redis", "redis")]
)
def test_a_missing_client_library_is_named(monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str) -> None:
    from fleetcron.election import make_elector

    monkeypatch.setitem(__import__("sys").modules, f"{module}.client" if module == "kazoo" else "redis.asyncio", None)
    with pytest.raises(ConfigError, match=rf'pip install "fleetcron\[{extra}\]"'):
        make_elector(url, "a", timedelta(seconds=5))


@pytest.mark.parametrize("elector", ELECTORS)
async def test_C29_a_new_leader_writes_ticks_within_a_ttl_and_a_scan(
    pg_url: str, elector: str, shared_url: Callable[[str], str]
) -> None:
    """Again and again the leader's link goes; a schedule made at that moment has its ticks when the successor has looked once."""
    url = shared_url(elector)
    crew = [Member(pg_url, url, ttl=TTL) for _ in range(2)]
    keep = make_store(pg_url)
    await keep.open()
    try:
        await keep.put_jobs([job()])
        async with members(*crew):
            for round_ in range(3):
                await until(lambda: any(member.leads() for member in crew), what="a leader")
                leader = next(member for member in crew if member.leads())
                leader.proxy.refuse()
                await put(keep, schedule(f"tick-{round_}", Every(10), misfire="fire_all"))
                cut = time.monotonic()
                while not await look(keep, f"SELECT 1 FROM run WHERE schedule = 'tick-{round_}'"):
                    assert time.monotonic() - cut < TTL + 1.0 + 2.0, "no tick within a ttl and a scan"
                    await asyncio.sleep(0.01)
                assert not leader.leads()
                await leader.proxy.heal()
    finally:
        await keep.close()


async def test_C29_a_scheduler_that_dies_of_a_fault_starts_again(
    pg_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of fleetcron's own ends the scheduler's loop: it is told in full, and the node leads again, in another term."""
    step, faults = Ticker.step, iter([RuntimeError("a fault of ours")])

    async def faulty(self: Ticker) -> int:
        for fault in faults:
            raise fault
        return await step(self)

    monkeypatch.setattr(Ticker, "step", faulty)
    fleet = Fleet(pg_url, election_ttl="1s")
    fleet.job("tick", every="10s", misfire="skip")(lambda: None)
    node = Node(fleet, NodeOptions(roles=("scheduler",)))
    running = asyncio.create_task(node.run())
    try:
        await until(lambda: "and starts again" in caplog.text, what="a word of it")
        assert "a fault of ours" in caplog.text
        assert node.scheduler is not None
        await until(
            lambda: node.scheduler is not None and node.scheduler.status().leading == {0: 2}, what="leading again"
        )
        async with Fleet(pg_url) as looking:
            while not await looking.runs(schedule="tick"):
                await asyncio.sleep(0.02)
    finally:
        node.stop()
        await running


async def test_C30_user_code_that_holds_every_connection(pg_url: str) -> None:
    """More runs in open transactions than the pool has connections: the leader goes on in its term, the worker in its session."""
    fleet = Fleet(pg_url, election_ttl="1s", lease="3s")

    @fleet.job("hold", timeout="30s")
    async def hold(ctx: Context) -> None:
        async with ctx.transaction():
            await asyncio.sleep(4)

    node = Node(fleet, NodeOptions(slots=30))
    running = asyncio.create_task(node.run())
    watching = make_store(pg_url)
    try:
        await until(
            lambda: node.worker is not None and node.scheduler is not None and node.scheduler.scheduler is not None
        )
        await watching.open()
        while (leader := (await watching.leaders())[0]).node is None:
            await asyncio.sleep(0.02)
        runs = [await fleet.submit(hold) for _ in range(20)]
        end = time.monotonic() + 4
        while time.monotonic() < end:
            now = (await watching.leaders())[0]
            assert (now.node, now.term) == (leader.node, leader.term)
            await asyncio.sleep(0.1)
        for run in runs:
            await run.refresh()
        assert {attempt.state for run in runs for attempt in run.attempts} <= {"running", "succeeded"}
    finally:
        node.stop()
        await running
        await watching.close()


async def test_C32_an_etcd_token_that_runs_out(
    new_server: Callable[[str], ElectorServer], elector: StartElector
) -> None:
    """A restart forgets every token (as time does). The leader asks for another one and keeps its lease; a waiter takes over within the
    lease and a poll of the key's going."""
    server = new_server("etcd")
    assert isinstance(server, Etcd)
    url = server.require_account("scheduler", "hush")
    one, two = await elector(url, "one"), await elector(url, "two")
    one.stand((), (0,), 1)
    await until(lambda: one.nominated(0))
    two.stand((), (0,), 1)
    await until(two.reached)
    await asyncio.to_thread(server.restart)
    one.stand((0,), (), 0)
    await until(lambda: one.reached() and two.reached(), what="both being back")
    await until(lambda: one.nominated(0) or two.nominated(0))
    holder, waiter = (one, two) if one.nominated(0) else (two, one)
    holder.stand((), (), 0)
    waiter.stand((), (0,), 1)
    took = await until(lambda: waiter.nominated(0), what="the take-over")
    assert took < TTL / 3 + TTL + 2.0
    assert "hush" not in one.state().words()


async def test_C32_a_watch_that_hears_nothing(
    new_server: Callable[[str], ElectorServer], elector: StartElector
) -> None:
    """The path swallows everything, the key goes meanwhile, and the path comes back without a reset."""
    server = new_server("etcd")
    assert isinstance(server, Etcd)
    holder = await elector(server.url, "holder")
    holder.stand((), (0,), 1)
    await until(lambda: holder.nominated(0))
    async with Proxy("127.0.0.1", server.port) as proxy:
        waiter = await elector(server.url.replace(str(server.port), str(proxy.port)), "waiter")
        waiter.stand((), (0,), 1)
        await until(waiter.reached)
        await asyncio.sleep(TTL / 2)  # the watch is open
        proxy.blackhole()
        await asyncio.sleep(TTL / 4)
        await holder.stop()
        await asyncio.sleep(TTL)
        await proxy.heal()
        assert await until(lambda: waiter.nominated(0), what="the take-over") < 2 * TTL + 2.0
        await waiter.stop()  # before its proxy


async def test_etcd_members_that_do_not_answer_are_passed_over(
    new_server: Callable[[str], ElectorServer], elector: StartElector
) -> None:
    """One member refuses, one swallows, one is well: the lease is kept across them."""
    server = new_server("etcd")
    async with Proxy("127.0.0.1", server.port) as first, Proxy("127.0.0.1", server.port) as second:
        hosts = ",".join(f"127.0.0.1:{port}" for port in (first.port, second.port, server.port))
        node = await elector(f"etcd://{hosts}/fleet", "a", 2.0)
        assert isinstance(node, EtcdElector)
        node.stand((), (0, 1), 2)
        await until(lambda: node.nominated(0) and node.nominated(1))
        node.stand((0, 1), (), 0)
        first.refuse()
        end = time.monotonic() + 1
        while time.monotonic() < end:
            assert node.nominated(0), "lost when the first member went"
            await asyncio.sleep(0.01)
        second.blackhole()
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert node.nominated(0), "lost when the second member went silent"
            await asyncio.sleep(0.01)
        await node.stop()  # before its proxies


async def test_C38_a_redis_replica_without_the_last_writes(
    pg_url: str, new_server: Callable[[str], ElectorServer]
) -> None:
    """After a failover that lost a key two nodes are nominated for one shard. The database confers the term to one: every tick is one run."""
    first, second = (
        new_server("redis"),
        new_server("redis"),
    )  # to the second one, nobody holds anything: as if it had been promoted too early
    assert isinstance(first, Redis)
    one, two = Member(pg_url, first.url), Member(pg_url, second.url)
    async with members(one):
        await until(one.leads, what="the first leader")
        await one.store.put_jobs([job()])
        await put(one.store, schedule("tick", Every(1), misfire="fire_all"))
        async with members(two):
            both = 0
            began = time.monotonic()
            while (passed := time.monotonic() - began) < 2 * TTL or both <= 50:
                assert passed < 15, "the split brain was hardly there"
                both += one.scheduler.elector.nominated(0) and two.scheduler.elector.nominated(0)
                assert not (one.leads() and two.leads())
                two.scheduler.elector.stand(
                    (), (0,), 1
                )  # it stands for what is not free, which a node would not do of itself
                await asyncio.sleep(0.01)
            assert one.leads()
            await asyncio.to_thread(first.stop)
            await until(two.leads, what="the other nominee")
            assert (await two.store.leaders())[0].term == 2
        ticks = await look(one.store, "SELECT count(*), count(DISTINCT nominal_at) FROM run")
        assert ticks[0][0] == ticks[0][1] > 0


@pytest.mark.parametrize("elector", ["etcd", "zk", "redis"])
async def test_a_node_without_its_database_gives_its_nominations_back(
    pg_url: str, elector: str, shared_url: Callable[[str], str]
) -> None:
    """Else it would keep the keys of shards that it cannot lead, and nobody could."""
    url = shared_url(elector)
    one, two = Member(pg_url, url, shards=4), Member(pg_url, url, shards=4)
    async with members(one, two):
        await until(lambda: len(one.scheduler.leading()) == len(two.scheduler.leading()) == 2, what="two each")
        one.proxy.blackhole()
        await until(lambda: len(two.scheduler.leading()) == 4, within=8, what="the other leading all")
        assert one.scheduler.elector.reached() and one.scheduler.leading() == []
        await one.proxy.heal()
        await until(lambda: len(one.scheduler.leading()) == 2, within=12, what="two each again")
