"""Eight processes at one lock, killed and frozen at random, and the books afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetcron import Fleet
from tests.locks import resource
from tests.locks.resource import NAME, Resource

pytestmark = [pytest.mark.crash]

ROOT = Path(__file__).parents[2]
MEMBERS = 8
TTL = 0.8


class Crowd:
    """The members, by their process groups' leaders; a killed one is replaced. What they say goes to a file."""

    def __init__(self, url: str, folder: Path, chance: random.Random) -> None:
        self.url, self.chance = url, chance
        self.kills = self.freezes = 0
        # The first ones are given: that there was one of each must not be luck.
        kinds = ["kill", "freeze the holder", "freeze"]
        self._kinds = itertools.chain(kinds, iter(lambda: chance.choice(kinds), None))
        self._said = (folder / "members.log").open("ab")
        self._frozen: dict[subprocess.Popen[bytes], float] = {}
        self.members = [self._start() for _ in range(MEMBERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.locks.member", self.url, str(TTL), str(self.chance.getrandbits(32))],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said,
        )  # fmt: skip

    async def disturb(self, fleet: Fleet) -> None:
        """Kill somebody (every other time the holder), freeze anybody for a while, or freeze the holder until it is late."""
        kind = next(self._kinds)
        running = [member for member in self.members if member not in self._frozen]
        holder = await self._holder(fleet)
        if kind == "freeze the holder" or not running:
            await self._freeze_the_holder(fleet)
            return
        member = holder[0] if holder is not None and self.chance.random() < 0.5 else self.chance.choice(running)
        if kind == "freeze":
            self._freeze(member, self.chance.uniform(0.2, 2) * TTL)
            return
        self.kills += 1
        self._frozen.pop(member, None)
        member.kill()
        member.wait(10)
        self.members[self.members.index(member)] = self._start()

    async def _holder(self, fleet: Fleet) -> tuple[subprocess.Popen[bytes], int] | None:
        """Who has the lock, and its fence."""
        held = next((one for one in await fleet.locks() if one.name == NAME), None)
        pid = None if held is None else int(held.owner.rpartition(":")[2])
        found = next((member for member in self.members if member.pid == pid), None)
        return None if held is None or found is None else (found, held.fence)

    async def _freeze_the_holder(self, fleet: Fleet) -> None:
        """In its hold: it still has the lock when it stands still."""
        for _ in range(20):
            holder = await self._holder(fleet)
            if holder is None or holder[0] in self._frozen:
                continue
            holder[0].send_signal(signal.SIGSTOP)
            if await self._holder(fleet) == holder:
                self._freeze(holder[0], self.chance.uniform(1.3, 2) * TTL)
                return
            holder[0].send_signal(signal.SIGCONT)

    def _freeze(self, member: subprocess.Popen[bytes], seconds: float) -> None:
        self.freezes += 1
        member.send_signal(signal.SIGSTOP)
        self._frozen[member] = time.monotonic() + seconds

    def thaw(self, *, everybody: bool = False) -> None:
        """Those whose time has come."""
        for member, when in list(self._frozen.items()):
            if everybody or time.monotonic() >= when:
                del self._frozen[member]
                member.send_signal(signal.SIGCONT)

    def check_alive(self) -> None:
        assert all(member.poll() is None for member in self.members), "a member has ended by itself: see members.log"

    def close(self) -> None:
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):
                member.kill()
        for member in self.members:
            member.wait(10)
        self._said.close()


async def count(books: Resource, table: str) -> int:
    return int((await books.query(f"SELECT count(*) FROM {table}"))[0][0])


@contextlib.contextmanager
def crowd(url: str, folder: Path, chance: random.Random) -> Iterator[Crowd]:
    members = Crowd(url, folder, chance)
    try:
        yield members
    finally:
        members.close()


async def at_it(url: str, folder: Path, wanted: int, within: float, every: int) -> None:
    """Let a crowd have the lock so many times, and until a late write was tried at least once; then judge."""
    seed = int(os.environ.get("LOCK_SEED", time.time_ns() % 2**32))
    print(f"LOCK_SEED={seed}")
    async with Fleet(url) as fleet:
        await resource.prepare(url)
        books = await resource.connect(url)
        try:
            with crowd(url, folder, random.Random(seed)) as members:
                await trouble(fleet, books, members, wanted, within, every)
            await judge(url, books)
        finally:
            await books.close()
        await asyncio.sleep(TTL)
        await fleet.store.lock_prune()
        assert await fleet.locks() == []


async def trouble(fleet: Fleet, books: Resource, members: Crowd, wanted: int, within: float, every: int) -> None:
    """Kill or freeze one of the members about every so many acquisitions."""
    began, disturb_at = time.monotonic(), 2 * MEMBERS
    while (taken := await count(books, "hold")) < wanted or not await count(books, "refused"):
        assert time.monotonic() - began < within, f"only {taken} acquisitions in {within:g} s"
        members.thaw()
        members.check_alive()
        if taken >= disturb_at:
            disturb_at = taken + members.chance.randint(1, 2 * every)
            await members.disturb(fleet)
        await asyncio.sleep(0.02)
    seconds = time.monotonic() - began
    members.thaw(everybody=True)
    await asyncio.sleep(TTL)  # who was frozen has its last chance to do harm
    print(f"{taken} acquisitions in {seconds:.0f} s, {members.kills} kills, {members.freezes} freezes")
    assert members.kills and members.freezes


async def judge(url: str, books: Resource) -> None:
    """The books, by SQL."""
    rules = resource.RULES | ({} if url.startswith("sqlite") else resource.ON_POSTGRES)
    broken = {rule: found for rule, statement in rules.items() if (found := await books.query(statement))}
    refused = dict(await books.query("SELECT by, count(*) FROM refused GROUP BY by"))
    taken, ended = (await books.query("SELECT count(*), count(ended) FROM hold"))[0]
    print(f"{taken} holders, {taken - ended} of them not to their end; late writes refused: {refused}")
    assert broken == {}


@pytest.mark.timeout(330)
async def test_C38_C40_1000_acquisitions_and_200_of_a_file_with_kills_and_freezes(pg_url: str, tmp_path: Path) -> None:
    """On both stores at once: half of the time a crowd waits for the ttl of somebody who was killed or frozen."""
    (on_file := tmp_path / "file").mkdir()
    async with asyncio.TaskGroup() as both:
        both.create_task(at_it(pg_url, tmp_path, 1000, within=300, every=50))
        both.create_task(at_it(f"sqlite:///{on_file / 'fleet.db'}", on_file, 200, within=300, every=20))


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_C38_C40_10000_acquisitions_with_kills_and_freezes(store_url: str, tmp_path: Path) -> None:
    await at_it(store_url, tmp_path, 10_000, within=3500, every=30)
