"""The doctor's hands: gathers the facts of a fleet for `checks`, and changes nothing."""

from __future__ import annotations

import asyncio
import os
import uuid
from datetime import datetime

import fleetcron
from fleetcron.cli import checks
from fleetcron.cli.checks import Check
from fleetcron.cli.urls import masked
from fleetcron.clock import wall_now
from fleetcron.errors import FleetcronError, SchemaMismatch, StoreUnavailable
from fleetcron.fleet import Fleet
from fleetcron.store.protocol import Store
from fleetcron.store.sqlite.connection import parse_url
from fleetcron.triggers import tzdata_version

_HEAR_WITHIN = 2.0
_DEAD_LIMIT = 1000


async def examine(fleet: Fleet) -> list[Check]:
    """Every check that can be made. Never raises for a fleet in a bad state: that is what it reports."""
    if fleet.options.url.lower().startswith("sqlite:"):
        file = _sqlite_file(fleet.options.url)
        if file is not None and file.verdict == "broken":
            return [file]
        found = [] if file is None else [file]
    else:
        found = []
    database = await _database(fleet)
    found = [*database, *found]
    if any(check.verdict == "broken" for check in database):
        return found
    try:
        async with fleet:
            found += await _fleet(fleet)
    except FleetcronError as error:
        found.append(Check(name="fleet", verdict="broken", text=str(error)))
    return found


def _sqlite_file(url: str) -> Check | None:
    path = parse_url(url).path
    if path is None:
        return None
    path = path.absolute()
    exists = path.is_file()
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    header = b""
    if exists and os.access(path, os.R_OK):
        with path.open("rb") as file:
            header = file.read(100)
    return checks.sqlite_file(path, exists=exists, writable=writable, header=header)


async def _database(fleet: Fleet) -> list[Check]:
    """Reachable, and with the schema that this program needs."""
    store = fleet.make_store(pool_size=1)
    where = masked(fleet.options.url)
    try:
        pending = await store.pending_migrations()
    except SchemaMismatch as error:
        return [_reached(where), Check(name="schema", verdict="broken", text=str(error))]
    except StoreUnavailable as error:
        hint = "; this looks like PgBouncer: use --pgbouncer" if "unsupported startup parameter" in str(error) else ""
        return [Check(name="database", verdict="broken", text=f"{where}: {error}{hint}")]
    finally:
        await store.close()
    if pending:
        text = f"older than this program, or not there yet ({checks.named(pending)} to apply): run fleetcron migrate"
        return [_reached(where), Check(name="schema", verdict="broken", text=text)]
    return [_reached(where), Check(name="schema", verdict="ok", text="up to date")]


def _reached(where: str) -> Check:
    return Check(name="database", verdict="ok", text=f"{where} answers")


async def _fleet(fleet: Fleet) -> list[Check]:
    store = fleet.store
    before = wall_now()
    now = await store.now()
    host = before + (wall_now() - before) / 2
    nodes, shards, jobs = await fleet.nodes(), await fleet.leaders(), await fleet.jobs()
    lanes = (await store.lanes(None)).lanes
    first_due: datetime | None = min((lane.first_due for lane in lanes), default=None)
    waiting = first_due is not None and first_due <= now
    broken = {s.name: s.error or "" for shard in shards for s in await store.broken_schedules(shard.shard)}
    active = any(not s.paused and s.next_at is not None for s in await fleet.schedules(limit=1000))
    dead = await fleet.dead_letters(limit=_DEAD_LIMIT)
    found = [
        checks.versions(fleetcron.__version__, nodes),
        checks.clock(host, now),
        checks.zones(tzdata_version(), nodes),
        checks.leaders(shards, active_schedules=active),
        *filter(None, [checks.electors(nodes, active_schedules=active)]),
        checks.workers(nodes, waiting=waiting),
        checks.handlers(jobs, await fleet.unknown_jobs(), live_workers=any(node.worker_pids for node in nodes)),
        checks.schedules(broken),
        checks.oldest(first_due, now),
        checks.dead_letters(len(dead), dead.next is not None),
    ]
    care = await store.care()
    if care is not None:
        found += [checks.snapshots(care.snapshot), checks.bloat(care.tables)]
    if store.kind == "postgres":
        o = fleet.options
        heard = await _hears(store)
        found.append(checks.wake_ups(heard, pgbouncer=o.pgbouncer, direct=o.direct_url is not None))
    return found


async def _hears(store: Store) -> bool:
    """Does a notification of ours come back? Its name begins like no queue's, so that it wakes nobody."""
    word, heard = f"\x01doctor {uuid.uuid4().hex}", asyncio.Event()
    listening = asyncio.Event()

    def wake(channel: str) -> None:
        if channel == word:
            heard.set()
        listening.set()

    await store.listen(wake)
    try:
        async with asyncio.timeout(_HEAR_WITHIN):
            await listening.wait()
            await store.notify([word])
            await heard.wait()
    except TimeoutError:
        return False
    return True
