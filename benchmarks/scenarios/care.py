"""What it costs to be there: idle queries and CPU, WAL bytes a run, start-up times."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.lab import Lab, cpu_of
from benchmarks.report import LOWER, Report
from benchmarks.sample import Sample
from benchmarks.scenarios import Options
from benchmarks.subjects import chosen, fleetcron

IDLE_FOR = 30.0


def idle(lab: Lab, o: Options) -> Report:
    """A worker with nothing to do: statements a second that the server sees, CPU of the worker. Ours also as a whole node."""
    report = Report("idle", seconds=IDLE_FOR)
    with lab.connect() as c:
        c.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    for _ in range(max(1, o.repeat // 2)):
        ours = fleetcron(roles="worker")
        for name, subject in [
            *((s.name, s) for s in chosen(o.peers, ours)),
            ("fleetcron, scheduler and worker", fleetcron()),
        ]:
            with Sample.of(lab, subject, "count") as sample:
                sample.start()
                time.sleep(6)
                pids = [p.pid for p in sample.workers]
                calls, cpu = _calls(lab, subject.database), cpu_of(pids)
                time.sleep(IDLE_FOR)
                calls, cpu = _calls(lab, subject.database) - calls, cpu_of(pids) - cpu
            report.add(name, queries_per_s=round(calls / IDLE_FOR, 2), cpu_percent=round(cpu / IDLE_FOR * 100, 2))
    report.bar("idle worker: queries/s", report.median("fleetcron", "queries_per_s"), 2.0, LOWER)
    report.bar("idle worker: CPU, %", report.median("fleetcron", "cpu_percent"), 1.0, LOWER)
    return report


def _calls(lab: Lab, database: str) -> int:
    with lab.connect() as c:
        return int(
            c.execute(
                "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s",
                (database,),
            ).fetchall()[0][0]
        )


def wal(lab: Lab, o: Options) -> Report:
    """WAL bytes and commits a run, from submit to history, 20-byte payload, second round after a checkpoint."""
    n = o.n or 50_000
    report = Report("wal", n=n, payload_bytes=20)
    for _ in range(o.repeat):
        for subject in chosen(o.peers, fleetcron()):
            count = n if subject.name != "procrastinate" else n // 10
            with Sample.of(lab, subject, "count", BENCH_PAD="0") as sample:
                lab.settle(
                    subject.database
                )  # a checkpoint now, and none until the end: what a page costs again after each is not counted
                sample.tell("enqueue", count)
                sample.start()
                sample.drain(count)
                sample.again()
                begin = _wal(lab, subject.database)
                sample.tell("enqueue", count)
                inserted = _wal(lab, subject.database)
                sample.start()
                sample.drain(count)
                end = _wal(lab, subject.database)
            report.add(
                subject.name,
                bytes=round((end[0] - begin[0]) / count),
                bytes_insert=round((inserted[0] - begin[0]) / count),
                bytes_run=round((end[0] - inserted[0]) / count),
                images=end[1] - begin[1],
                commits_per_run=round((end[2] - begin[2]) / count, 4),
            )
    report.bar("WAL bytes a run", report.median("fleetcron", "bytes"), 1100, LOWER)
    for peer in ("pgboss", "pgqueuer"):
        report.ratio(f"WAL bytes a run: fleetcron / {peer} (keeps history)", "fleetcron", peer, "bytes", 1.0, LOWER)
    return report


def _wal(lab: Lab, database: str) -> tuple[int, int, int]:
    with lab.connect(database) as c:
        row = c.execute(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, (SELECT wal_fpi FROM pg_stat_wal), "
            "(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())"
        ).fetchall()[0]
    return int(row[0]), int(row[1]), int(row[2])


def startup(_lab: Lab | None, o: Options) -> Report:
    """`import fleetcron` (over the interpreter's own start) and `fleetcron --help`."""
    report = Report("startup")

    def took(*command: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True, timeout=60)
        return (time.perf_counter() - began) * 1e3

    took("-c", "import fleetcron")
    for _ in range(o.repeat * 2):
        bare = statistics.median(took("-c", "pass") for _ in range(3))
        report.add(
            "fleetcron",
            import_ms=round(took("-c", "import fleetcron") - bare, 1),
            help_ms=round(took("-m", "fleetcron", "--help"), 1),
        )
    report.bar("import of fleetcron, ms", report.median("fleetcron", "import_ms"), 150, LOWER)
    report.bar("fleetcron --help, ms", report.median("fleetcron", "help_ms"), 250, LOWER)
    return report
