"""python -m benchmarks.capacity: what one database carries, and a simulation of 1,000,000 runs a second over many.

The model of one server is three budgets that a run draws on: CPU, WAL bytes, commits. The costs of a run are those of the
benchmarks (results/drain.json, results/wal.json). The simulation deals tenants of very unequal size to home databases, gives each
database its queue (a fluid one, in steps of a tenth of a second), and lets the minute strike, servers fail over and servers be added.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

RESULTS = Path(__file__).parent / "results"
STEP = 0.1  # seconds
TABLE = (
    "| due at :00 | jitter | servers | use: mean, busiest | p99 late | worst late "
    "| one fails over: late | caught up after | runs touched |"
)


class Cost(NamedTuple):
    """Of one run, from submit or tick to history."""

    cpu_us: float
    """CPU of the database server, microseconds."""
    wal_bytes: float
    commits: float

    @classmethod
    def measured(cls) -> Cost:
        """From the results in this folder. WAL is doubled for the page images that follow each checkpoint."""
        drain = json.loads((RESULTS / "drain.json").read_text())["medians"]["fleetcron"]
        wal = json.loads((RESULTS / "wal.json").read_text())["medians"]["fleetcron"]
        insert_us = 1e6 / drain["enqueue_rate"] * 0.6  # the server's part of the time of a bulk insert
        return cls(drain["us_store"] + insert_us, 2 * wal["bytes"], wal["commits_per_run"])


class Server(NamedTuple):
    """One PostgreSQL server; `target` is how much of it may be used in a quiet minute."""

    cores: float = 16
    wal_mb_s: float = 400
    commits_s: float = 5000
    target: float = 0.6

    def carries(self, cost: Cost) -> dict[str, float]:
        """Runs a second by each budget; the least one counts."""
        return {
            "cpu": self.cores * 1e6 / cost.cpu_us,
            "wal": self.wal_mb_s * 1e6 / cost.wal_bytes,
            "commits": self.commits_s / cost.commits,
        }

    def most(self, cost: Cost) -> float:
        return min(self.carries(cost).values())


class Load(NamedTuple):
    """What a fleet is asked for."""

    runs_s: float = 1_000_000
    tenants: int = 100_000
    skew: float = 1.05
    """Exponent of Zipf's law: the biggest tenant has about a twelfth of everything."""
    herd: float = 0.2
    """Share of the runs that is due when the minute strikes."""
    jitter_s: float = 0.0
    """Seconds over which `jitter=` spreads the herd."""


class Placement(NamedTuple):
    """Runs a second that each database has to carry, and of how many tenants it is (one) home."""

    load: list[float]
    tenants: list[int]
    split: int
    """Tenants so big that they have several homes."""


class Outcome(NamedTuple):
    servers: int
    utilisation: float
    busiest: float
    """Of all servers, on average and for the one that has most."""
    worst_late_s: float
    p99_late_s: float
    failover_late_s: float
    catch_up_s: float
    touched: float
    """Share of the runs whose home failed over."""
    moved: float
    """Share of the runs that changes its home when a tenth more servers are added."""


def tenant_loads(load: Load) -> list[float]:
    """Runs a second of each tenant, the biggest first."""
    weights = [rank**-load.skew for rank in range(1, load.tenants + 1)]
    total = sum(weights)
    return [load.runs_s * weight / total for weight in weights]


def homes(tenant: int, servers: int, count: int) -> list[int]:
    """Rendezvous hashing: the `count` servers with the highest score; adding a server moves only what it wins."""
    seed = tenant.to_bytes(8, "big")
    scored = sorted(
        range(servers), key=lambda s: hashlib.blake2b(seed + s.to_bytes(4, "big"), digest_size=8).digest(), reverse=True
    )
    return scored[:count]


def place(loads: Sequence[float], servers: int, most: float, *, share: float = 0.02) -> Placement:
    """Deal tenants to homes: by hash, then by hand what is too much. A tenant of more than `share` of a server gets several homes."""
    load, tenants, split = [0.0] * servers, [0] * servers, 0
    small = 0.0
    for nth, rate in enumerate(loads):
        if rate < most * share / 100:  # too many to deal one by one, too small to matter: they spread evenly
            small += rate
            continue
        count = min(servers, max(1, round(rate / (most * share))))
        split += count > 1
        # Two candidates a part, the emptier one: "the power of two choices" keeps the fullest near the mean.
        candidates = homes(nth, servers, min(servers, 2 * count))
        for part in range(count):
            pair = candidates[2 * part : 2 * part + 2] or candidates[-1:]
            home = min(pair, key=lambda s: load[s])
            load[home] += rate / count
            tenants[home] += 1
    return Placement([x + small / servers for x in load], tenants, split)


def queue(
    rate: float, most: float, load: Load, *, seconds: int = 180, down: tuple[float, float] | None = None
) -> list[float]:
    """Lateness, in seconds, of what arrives in each step: what waits before it, over what the server does."""
    spread = max(load.jitter_s, STEP)
    waiting, late = 0.0, []
    for step in range(int(seconds / STEP)):
        at = step * STEP
        arrives = rate * (1 - load.herd) * STEP
        if at % 60 < spread:
            arrives += rate * load.herd * 60 * STEP / spread
        waiting += arrives
        away = down is not None and down[0] <= at < down[1]
        late.append((waiting / most) + (down[1] - at if away and down is not None else 0.0))
        if not away:
            waiting = max(0.0, waiting - most * STEP)
    return late


def simulate(load: Load, cost: Cost, server: Server, *, failover_s: float = 30.0, seed: int = 1) -> Outcome:
    """Three minutes of the fleet; in the second one a server chosen by `seed` fails over."""
    most = server.most(cost)
    servers = max(1, round(load.runs_s / (most * server.target)))
    loads = tenant_loads(load)
    placed = place(loads, servers, most)
    late: list[float] = []
    for rate in placed.load:
        late += queue(rate, most, load)
    late.sort()
    failing = random.Random(seed).randrange(servers)
    begin = 75.0
    hurt = queue(placed.load[failing], most, load, seconds=600, down=(begin, begin + failover_s))
    usual = queue(placed.load[failing], most, load, seconds=600)
    after = [at * STEP for at, (a, b) in enumerate(zip(hurt, usual, strict=True)) if a > b + 0.05]
    more = max(servers + 1, round(servers * 1.1))
    return Outcome(
        servers=servers,
        utilisation=load.runs_s / (servers * most),
        busiest=max(placed.load) / most,
        worst_late_s=late[-1],
        p99_late_s=late[int(len(late) * 0.99)],
        failover_late_s=max(hurt),
        catch_up_s=max(after) - begin - failover_s,
        touched=placed.load[failing] / load.runs_s,
        moved=(more - servers) / more,
    )


def table(cost: Cost, server: Server) -> str:
    """The rows of docs/explanation/scale.md."""
    rows = [TABLE, "|" + "---|" * (TABLE.count("|") - 1)]
    for herd, jitter in [(0.0, 0.0), (0.2, 0.0), (0.2, 30.0), (0.5, 0.0), (0.5, 55.0)]:
        o = simulate(Load(herd=herd, jitter_s=jitter), cost, server)
        cells = [
            f"{herd:.0%}",
            f"{jitter:.0f} s",
            f"{o.servers}",
            f"{o.utilisation:.0%}, {o.busiest:.0%}",
            f"{o.p99_late_s:.1f} s",
            f"{o.worst_late_s:.1f} s",
            f"{o.failover_late_s:.0f} s",
            f"{o.catch_up_s:.0f} s",
            f"{o.touched:.1%}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def page(server: Server | None = None) -> str:
    """What docs/explanation/scale.md shows: the cost of a run, what one server carries, and the fleet."""
    cost, server = Cost.measured(), server or Server()
    carries = server.carries(cost)
    lines = [
        "| of one run | cost | budget of a server | carries, runs/s |",
        "|---|---|---|---|",
        f"| CPU of the server | {cost.cpu_us:.0f} µs | {server.cores:.0f} cores | {carries['cpu']:,.0f} |",
        f"| WAL, page images included | {cost.wal_bytes:,.0f} bytes | {server.wal_mb_s:.0f} MB/s | {carries['wal']:,.0f} |",
        f"| commits | {cost.commits:.4f} | {server.commits_s:,.0f}/s | {carries['commits']:,.0f} |",
    ]
    return "\n".join(
        [
            *lines,
            "",
            f"1,000,000 runs/s of 100,000 tenants, servers used to {server.target:.0%} in a quiet minute:",
            "",
            table(cost, server),
        ]
    )


@click.command(help=__doc__)
@click.option("--cores", default=16.0, show_default=True)
@click.option("--wal-mb-s", default=400.0, show_default=True, help="What the disk takes of WAL, MB/s.")
@click.option("--commits-s", default=5000.0, show_default=True, help="What it takes of commits.")
@click.option("--target", default=0.6, show_default=True, help="Use of a server in a quiet minute.")
def main(cores: float, wal_mb_s: float, commits_s: float, target: float) -> None:
    click.echo(page(Server(cores, wal_mb_s, commits_s, target)))


if __name__ == "__main__":
    main()
