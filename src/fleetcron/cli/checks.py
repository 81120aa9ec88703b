"""The doctor's judgement: facts in, verdicts out. Pure: no clock, no database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from fleetcron.durations import format_duration
from fleetcron.model import Job, Leader, Node, Record, TableSize
from fleetcron.triggers.base import rfc3339

Verdict = Literal["ok", "warning", "broken"]

CLOCK_TOLERANCE = timedelta(seconds=1)
"""A larger difference is worth a word. It changes nothing: the database's clock decides what is due."""
LONG_WAIT = timedelta(minutes=1)
OLD_SNAPSHOT = timedelta(minutes=5)
MANY_DEAD = 100_000
"""Dead rows that a table may have without a word: autovacuum comes by once a minute."""
_NAMED = 5  # how many names a line holds
_WAL_VERSION = 2  # bytes 18 and 19 of the header: "file format write version" and "read version" are 2 in WAL mode


class Check(Record, frozen=True):
    """One line: what was looked at, the verdict, and what was seen (with what to do)."""

    name: str
    verdict: Verdict
    text: str


def clock(ours: datetime, theirs: datetime) -> Check:
    """The host's clock against the database's."""
    difference = ours - theirs
    ahead = "ahead of" if difference > timedelta(0) else "behind"
    size = timedelta(milliseconds=round(abs(difference) / timedelta(milliseconds=1)))
    words = f"{format_duration(size)} {ahead} the database's"
    if abs(difference) <= CLOCK_TOLERANCE:
        return Check(name="clock", verdict="ok", text=f"this host's is {words}")
    return Check(
        name="clock",
        verdict="warning",
        text=f"this host's is {words}; the database's decides, but logs will not agree: set it",
    )


def versions(ours: str, nodes: Sequence[Node]) -> Check:
    """Programs of one fleet should be of one version, but for the minutes of a roll-out."""
    others = sorted({node.version for node in nodes} - {ours})
    if others:
        return Check(name="version", verdict="warning", text=f"{ours} here, {', '.join(others)} on live nodes")
    return Check(name="version", verdict="ok", text=f"fleetcron {ours}{' on all live nodes' if nodes else ''}")


def zones(ours: str, nodes: Sequence[Node]) -> Check:
    """Time zone data: two versions may compute two different ticks."""
    others = sorted({node.tzdata for node in nodes} - {ours})
    if ours == "none":
        return Check(name="time zones", verdict="broken", text="there is no time zone data; install tzdata")
    if others:
        text = f"{ours} here, {', '.join(others)} on live nodes: update them, or ticks move with the leader"
        return Check(name="time zones", verdict="warning", text=text)
    return Check(name="time zones", verdict="ok", text=f"{ours}{' on all live nodes' if nodes else ''}")


def leaders(shards: Sequence[Leader], *, active_schedules: bool) -> Check:
    """Without a leader no tick is written. Where no schedule is active that harms nobody."""
    leading = [shard for shard in shards if shard.node is not None]
    if shards and len(leading) == len(shards):
        who = named(f"shard {s.shard}: {s.host}:{s.pid}, term {s.term}" for s in leading)
        return Check(name="leader", verdict="ok", text=who)
    missing = named(f"shard {s.shard}" for s in shards if s.node is None) or "any shard"
    return Check(
        name="leader",
        verdict="broken" if active_schedules else "warning",
        text=f"nobody leads {missing}, so no tick is written: start a node with the scheduler role (fleetcron run)",
    )


def electors(nodes: Sequence[Node], *, active_schedules: bool) -> Check | None:
    """Whether schedulers reach what nominates them. One that does not leads nothing; if none does, no tick is written."""
    standing = [(node, node.elector) for node in nodes if node.elector is not None]
    if not standing:
        return None
    places = {(state.kind, tuple(sorted((state.where or "").split(",")))) for _, state in standing}
    away = [(node, state) for node, state in standing if not state.reached]
    if away:
        text = named(
            f"{node.host}:{node.pid} since {rfc3339(state.since.replace(microsecond=0))}: {state.words()}"
            for node, state in away
        )
        none = len(away) == len(standing) and active_schedules
        return Check(name="elector", verdict="broken" if none else "warning", text=text)
    if len(places) > 1:
        text = named(f"{node.host}:{node.pid}: {state.words()}" for node, state in standing)
        return Check(name="elector", verdict="warning", text=f"not the same for all; give them one: {text}")
    words = standing[0][1].words()
    by = "" if standing[0][1].where is None else f" by {count(len(standing), 'scheduler')}"
    return Check(name="elector", verdict="ok", text=words + by)


def workers(nodes: Sequence[Node], *, waiting: bool) -> Check:
    """Without workers nothing runs."""
    processes = sum(len(node.worker_pids) for node in nodes)
    if processes:
        slots = sum(node.slots for node in nodes)
        text = f"{count(processes, 'process', 'es')} with {slots} slots on {count(len(nodes), 'node')}"
        return Check(name="workers", verdict="ok", text=text)
    return Check(
        name="workers",
        verdict="broken" if waiting else "warning",
        text=f"none is live{', and runs wait' if waiting else ''}: start a node with the worker role (fleetcron run)",
    )


def handlers(jobs: Sequence[Job], due: Mapping[str, int], *, live_workers: bool) -> Check:
    """Jobs that no live worker has a handler for; `due`: their runs that wait."""
    if due:
        names = named(f"{job} ({runs} due)" for job, runs in due.items())
        text = f"no live worker knows {names}: start the app that declares them"
        return Check(name="jobs", verdict="broken", text=text)
    unknown = [job.name for job in jobs if job.known is False]
    if unknown and live_workers:
        text = f"no live worker knows {named(unknown)} (nothing of theirs is due): start their app, or fleetcron job rm"
        return Check(name="jobs", verdict="warning", text=text)
    return Check(name="jobs", verdict="ok", text=f"{len(jobs)} known to the fleet")


def schedules(errors: Mapping[str, str]) -> Check:
    """Schedules that cannot be evaluated."""
    if errors:
        text = f"{len(errors)} cannot be evaluated: {named(f'{name}: {why}' for name, why in errors.items())}"
        return Check(name="schedules", verdict="broken", text=text)
    return Check(name="schedules", verdict="ok", text="all can be evaluated")


def oldest(first_due: datetime | None, now: datetime) -> Check:
    """The run that has waited longest for a worker."""
    if first_due is None or first_due > now:
        return Check(name="oldest waiting run", verdict="ok", text="none waits")
    waited = timedelta(seconds=round((now - first_due).total_seconds()))
    words = f"due {format_duration(waited)} ago"
    if waited <= LONG_WAIT:
        return Check(name="oldest waiting run", verdict="ok", text=words)
    return Check(
        name="oldest waiting run", verdict="warning", text=f"{words}: the workers do not keep up, or none may take it"
    )


def dead_letters(number: int, at_least: bool) -> Check:
    """Runs that used up their attempts."""
    if not number:
        return Check(name="dead letters", verdict="ok", text="none")
    text = f"{'at least ' if at_least else ''}{number}: fleetcron dead list, then dead replay or dead purge"
    return Check(name="dead letters", verdict="warning", text=text)


def wake_ups(heard: bool, *, pgbouncer: bool, direct: bool) -> Check:
    """Whether LISTEN hears a NOTIFY. Without it workers poll: later by up to a second, never wrong."""
    if pgbouncer and not direct:
        text = "off behind PgBouncer: workers poll; --direct-url (past PgBouncer) would wake them at once"
        return Check(name="wake-ups", verdict="ok", text=text)
    if heard:
        return Check(name="wake-ups", verdict="ok", text="LISTEN hears NOTIFY")
    text = "LISTEN heard no NOTIFY: is this PgBouncer in transaction mode? Then use --pgbouncer and --direct-url"
    return Check(name="wake-ups", verdict="warning", text=text)


def snapshots(oldest: tuple[str, timedelta] | None) -> Check:
    """An old snapshot keeps every dead row since: claims have to step over more and more of them."""
    if oldest is None or oldest[1] < OLD_SNAPSHOT:
        return Check(name="snapshots", verdict="ok", text="none is old")
    held = format_duration(timedelta(seconds=round(oldest[1].total_seconds())))
    text = f"{oldest[0]} has held one for {held}, and dead rows since cannot be removed: end that transaction"
    return Check(name="snapshots", verdict="warning", text=text)


def bloat(tables: Sequence[TableSize]) -> Check:
    """The narrow tables turn over completely; more dead rows in them than live ones means that autovacuum does not keep up."""
    swollen = [t for t in tables if t.dead > MANY_DEAD and t.dead > t.live]
    if swollen:
        names = named(f"{t.name}: {t.dead:,} dead rows beside {t.live:,}, {t.bytes / 2**20:,.0f} MiB" for t in swollen)
        text = f"{names}: is autovacuum on, and does it get to them? VACUUM them once by hand"
        return Check(name="dead rows", verdict="warning", text=text)
    return Check(name="dead rows", verdict="ok", text="autovacuum keeps up")


def sqlite_file(path: Path, *, exists: bool, writable: bool, header: bytes) -> Check:
    """The file of a SQLite fleet. `writable`: the file and its folder, where SQLite keeps the write-ahead log."""
    if not exists:
        return Check(name="file", verdict="broken", text=f"{path} does not exist: fleetcron run (or migrate) makes it")
    if not writable:
        return Check(name="file", verdict="broken", text=f"{path}, or its folder, may not be written by this user")
    if header[18:20] != bytes((_WAL_VERSION, _WAL_VERSION)):
        text = f"{path} is not in WAL mode: readers and writers block each other; is it on a network file system?"
        return Check(name="file", verdict="warning", text=text)
    return Check(name="file", verdict="ok", text=f"{path}, in WAL mode, writable")


def count(number: int, word: str, plural: str = "s") -> str:
    """1 node, 2 nodes."""
    return f"{number} {word}{plural if number != 1 else ''}"


def named(names: Iterable[str]) -> str:
    """The first few of them, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more
