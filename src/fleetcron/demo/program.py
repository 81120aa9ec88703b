"""The program around the story: a folder, a database, signals, the verdict, and nothing left behind."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from fleetcron.demo import app
from fleetcron.demo.errors import DemoFailed
from fleetcron.demo.facts import Facts
from fleetcron.demo.nodes import ELECTION_TTL, LEASE, Nodes
from fleetcron.demo.story import Story
from fleetcron.demo.telling import Name, Teller, tick_rows
from fleetcron.demo.verdicts import Verdict, judge
from fleetcron.errors import ConfigError
from fleetcron.fleet import Fleet
from fleetcron.store.sqlite.connection import parse_url

LIMIT, DRAIN = 54.0, 4.0
"""Seconds for the acts, and for the nodes to end: a demo that takes more than a minute has broken its own promise."""
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(*, url: str | None, keep: bool, as_json: bool) -> int:
    """See `fleetcron.demo.main`."""
    teller = Teller(error=as_json)
    folder = Path(tempfile.mkdtemp(prefix="fleetcron-demo-"))
    url = url or f"sqlite:///{folder / 'fleet.db'}"
    nodes = Nodes(url, folder, teller.say)
    stopped: list[signal.Signals] = []
    before = {number: signal.getsignal(number) for number in _ENDINGS}
    try:
        facts = asyncio.run(_play(url, folder, nodes, teller, stopped))
        return conclude(facts, folder, nodes.name, teller, as_json=as_json)
    except DemoFailed as problem:
        return _broken(problem, teller, as_json=as_json)
    except asyncio.CancelledError:
        if not stopped:
            raise
        teller.headline(f"\nstopped by {stopped[0].name}")
        return 128 + stopped[0]
    finally:
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_IGN)  # what follows takes a moment, and must not be cut short
        nodes.close()
        if keep:
            teller.headline(
                f"kept: {folder} (reports, logs of the nodes, what the witness saw, the database unless it was yours)"
            )
        else:
            shutil.rmtree(folder, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)


async def _play(url: str, folder: Path, nodes: Nodes, teller: Teller, stopped: list[signal.Signals]) -> Facts:
    """The story, within its time; the nodes then drain. A signal cancels it and is noted in `stopped`."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop(number: signal.Signals) -> None:
        stopped.append(number)
        task.cancel()

    for number in _ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stop, number)
    fleet = app.fleet.twin()
    fleet.configure(url)
    await _check_empty(fleet)
    store = "SQLite" if url.lower().startswith("sqlite:") else "PostgreSQL"
    teller.headline(f"fleetcron demo: a nightly report on real processes, on {store}")
    teller.aside(
        f"A lease lasts {LEASE} here, a leader's term {ELECTION_TTL}, so that a minute is enough to lose them; "
        "unless told otherwise they last 15s and 5s.\n"
        "Every node is a process of its own; the demo starts again what dies, as a service manager would."
    )
    async with fleet:
        try:
            async with asyncio.timeout(LIMIT):
                facts = await Story(fleet, nodes, teller, folder).play()
        except TimeoutError:
            raise DemoFailed(f"the demo was not over after {LIMIT:g} s") from None
        left = await nodes.stop(DRAIN)
    teller.act("The fleet stops")
    teller.say(f"SIGTERM: {'did not end in time: ' + ', '.join(left) if left else 'all four nodes drained and ended'}")
    return facts


async def _check_empty(fleet: Fleet) -> None:
    """The demo kills, floods and judges: it wants a database to itself. Raises ConfigError."""
    url = fleet.options.url
    if url.lower().startswith("sqlite:") and parse_url(url).path is None:
        raise ConfigError(
            "the demo's nodes are processes: they cannot share a database in the memory of one of them; give a file"
        )
    async with fleet.operator() as looking:
        if known := await looking.jobs():
            raise ConfigError(
                f"the demo wants an empty database of its own; this one knows {len(known)} jobs, such as {known[0].name!r}"
            )


def conclude(facts: Facts, folder: Path, name: Name, teller: Teller, *, as_json: bool) -> int:
    """Print the ticks, a report and the verdicts; returns 1 if a promise was broken, else 0."""
    verdicts = judge(facts)
    teller.act("Tick by tick")
    teller.ticks(tick_rows(facts, name))
    teller.act("The sleeper's night, as its successor reported it")
    run = facts.run(facts.frozen.run_id)
    if run is not None and isinstance(run.result, dict):
        teller.aside((folder / "reports" / run.result["report"]).read_text(encoding="utf-8"))
    teller.act("Promises")
    teller.verdicts(verdicts)
    broken = sum(not verdict.kept for verdict in verdicts)
    summary = (
        f"{broken} of {len(verdicts)} promises were broken" if broken else f"all {len(verdicts)} promises were kept"
    )
    teller.headline(f"\n{summary}, in {teller.seconds():.0f} s")
    if as_json:
        _document(
            {
                "kept": not broken,
                "verdicts": verdicts,
                "runs": facts.runs,
                "misses": facts.misses,
                "dead_letters": facts.letters,
            }
        )
    return 1 if broken else 0


def _broken(problem: DemoFailed, teller: Teller, *, as_json: bool) -> int:
    verdict = Verdict(
        promise="the demo gets to its end", kept=False, expected=f"every act within {LIMIT:g} s", seen=str(problem)
    )
    teller.act("Promises")
    teller.verdicts([verdict])
    teller.aside("`fleetcron demo --keep` keeps the logs of the nodes")
    if as_json:
        _document({"kept": False, "verdicts": [verdict]})
    return 1


def _document(value: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value)) + b"\n")
    sys.stdout.flush()
