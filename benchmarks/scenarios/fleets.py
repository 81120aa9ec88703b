"""What only a fleet has: tenants by the thousand, schedules by the million."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime, timedelta
from itertools import islice

import psutil

from benchmarks.lab import Lab, cpu_of
from benchmarks.report import LOWER, Report
from benchmarks.sample import Sample
from benchmarks.scenarios import Options
from benchmarks.subjects import fleetcron
from fleetcron import Every, Fleet

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def tenants(lab: Lab, o: Options) -> Report:
    """Drain 50,000 runs of 1, 100, 1,000 and 10,000 tenants; and of 1,000 that all have limits."""
    n = o.n or 50_000
    report = Report("tenants", n=n)
    for _ in range(o.repeat):
        for count, limited in [(1, False), (100, False), (1000, False), (1000, True), (10_000, False)]:
            with Sample.of(lab, fleetcron(), "count") as sample:
                asyncio.run(_fill(sample.url, n, count, limited=limited))
                lab.settle(sample.subject.database)
                sample.start()
                report.add(f"{count:,} tenants{', all limited' if limited else ''}", **sample.drain(n))
    report.ratio("drain: 10,000 tenants / 1", "10,000 tenants", "1 tenants", "rate", 0.7)
    report.ratio(
        "drain: 1,000 limited tenants / 1,000 without limits",
        "1,000 tenants, all limited",
        "1,000 tenants",
        "rate",
        0.8,
    )
    return report


async def _fill(url: str, n: int, count: int, *, limited: bool) -> None:
    fleet = Fleet(url)

    @fleet.job(name="noop")
    async def noop(n: int, pad: str = "") -> None: ...

    async with fleet:
        for tenant in range(count):
            if limited:
                await fleet.set_tenant(f"t{tenant}", rate="1000000/s", max_running=1000)
        each = n // count
        many = [noop_payload(i) for i in range(each)]
        for tenant in range(0, count, 20):
            await asyncio.gather(
                *(fleet.submit_many(noop, many, tenant=f"t{t}") for t in range(tenant, min(count, tenant + 20)))
            )


def noop_payload(i: int) -> dict[str, object]:
    return {"n": i, "pad": "x" * 180}


def schedules(lab: Lab, o: Options) -> Report:
    """1,000,000 schedules registered, 300,000 of them due within a minute: how fast the leader writes their ticks; how soon another
    node leads after kill -9; how much memory a leader needs."""
    n = o.n or 1_000_000
    busy = min(300_000, n)
    report = Report("schedules", n=n, within_a_minute=busy)
    with Sample.of(lab, fleetcron(roles="scheduler"), "count", FLEETCRON_ELECTION_TTL="2s") as sample:
        rate = asyncio.run(_register(sample.url, n, busy))
        lab.settle(sample.subject.database)
        for _ in range(o.repeat):
            with lab.connect(sample.subject.database) as c:
                c.execute("TRUNCATE fleetcron.run, fleetcron.ready, fleetcron.timetable, fleetcron.miss")
                # The busy ones have their next tick from 5 s on, as they would without the pause between samples; the others none.
                c.execute(
                    "UPDATE fleetcron.schedule SET judged_until = NULL, prev_at = NULL, next_at = CASE WHEN id <= %s "
                    "THEN next_at + ceil(extract(epoch FROM now() + interval '5 s' - next_at) / 60) * interval '1 minute' "
                    "ELSE now() + interval '1 hour' + (id %% 3600) * interval '1 s' END",
                    (busy,),
                )
                c.execute("VACUUM ANALYZE fleetcron.schedule")
            first, second = sample.start_one(), sample.start_one()
            (sample.folder / "go").touch()
            figures = _fired(lab, sample, busy)
            leader = _leader(lab, sample)
            memory = psutil.Process(leader).memory_info().rss / 2**20
            cpu = cpu_of([leader])
            killed = time.time()
            with contextlib.suppress(ProcessLookupError):
                psutil.Process(leader).kill()
            while (now := _leader(lab, sample)) in {leader, 0}:
                time.sleep(0.01)
            report.add(
                "fleetcron", **figures, take_over_s=round(time.time() - killed, 2), memory_mib=round(memory), cpu_s=round(cpu, 1),
                register_rate=round(rate), successor=now != leader,
            )  # fmt: skip
            assert {first.pid, second.pid} >= {leader}
            sample.again()
    report.bar("ticks/s fired by one leader", report.median("fleetcron", "ticks_per_s"), 15_000)
    report.bar("take-over after kill -9, s", report.median("fleetcron", "take_over_s"), 2.0, LOWER)
    report.bar("memory of the leader, MiB", report.median("fleetcron", "memory_mib"), 300, LOWER)
    return report


async def _register(url: str, n: int, busy: int) -> float:
    """Schedules a second."""
    fleet = Fleet(url)

    @fleet.job(name="noop")
    async def noop(n: int = 0) -> None: ...

    async with fleet:
        began = time.perf_counter()
        options = {"misfire": "skip"}

        def trigger(i: int) -> Every:
            return Every("1m", EPOCH + i * timedelta(minutes=1) / busy) if i < busy else Every("1h")

        wanted = ((f"s{i}", noop, trigger(i), None, options) for i in range(n))
        while chunk := list(islice(wanted, 10_000)):
            await fleet.schedule_many(chunk)
        return n / (time.perf_counter() - began)


def _leader(lab: Lab, sample: Sample) -> int:
    with lab.connect(sample.subject.database) as c:
        found = c.execute("SELECT pid FROM fleetcron.shard WHERE id = 0 AND expires_at > now()").fetchall()
    return int(found[0][0] or 0) if found else 0


def _fired(lab: Lab, sample: Sample, busy: int) -> dict[str, float]:
    """From the first tick written until each of these schedules has had one: by the sequence of ids, which costs nothing to read."""
    with lab.connect(sample.subject.database) as c:

        def written() -> int:
            return int(
                c.execute("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM fleetcron.run_id_seq").fetchall()[
                    0
                ][0]
            )

        before, first, begin, until = written(), 0, 0.0, time.monotonic() + 180
        while (ticks := written() - before) < busy and time.monotonic() < until:
            sample.check()
            if ticks and not begin:
                first, begin = ticks, time.time()
            time.sleep(0.02)
        took = time.time() - begin
    if ticks < busy:
        raise RuntimeError(f"{ticks} of {busy} ticks were written within three minutes")
    return {"ticks_per_s": round((ticks - first) / took), "ticks": ticks}
