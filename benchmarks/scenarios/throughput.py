"""enqueue and drain: how many runs a second go in, and come out."""

from __future__ import annotations

from benchmarks.lab import Lab
from benchmarks.report import Report
from benchmarks.sample import Sample
from benchmarks.scenarios import Options
from benchmarks.subjects import Subject, chosen, fleetcron

FASTEST_PYTHON = "pgqueuer"


def drain(lab: Lab, o: Options) -> Report:
    """50,000 runs of 200 bytes, no-op handlers, from the first start until the store has nothing left; and the bulk insert before it."""
    n = o.n or 50_000
    report = Report("drain", n=n, workers=o.workers)
    for _ in range(o.repeat):
        for subject in chosen(o.peers, fleetcron()):
            report.add(
                subject.name, **_drain(lab, subject, n if subject.name != "procrastinate" else n // 10, o.workers)
            )
    report.ratio(f"drain, {o.workers} worker(s): fleetcron / graphile-worker", "fleetcron", "graphile", "rate", 1.0)
    if o.workers == 1:
        report.ratio("drain: fleetcron / pgqueuer (fastest Python peer)", "fleetcron", FASTEST_PYTHON, "rate", 2.5)
    return report


def _drain(lab: Lab, subject: Subject, n: int, workers: int, **env: str) -> dict[str, float]:
    with Sample.of(lab, subject, "count", **env) as sample:
        enqueued = sample.tell("enqueue", n)
        lab.settle(subject.database)
        sample.start(workers)
        return {"enqueue_rate": round(n / enqueued["secs"]), **sample.drain(n)}


def variants(lab: Lab, o: Options) -> Report:
    """Ours alone: results kept, and several worker processes under one node."""
    n = o.n or 50_000
    report = Report("variants", n=n)
    for _ in range(o.repeat):
        report.add("no-op", **_drain(lab, fleetcron(), n, 1))
        report.add("with results", **_drain(lab, fleetcron(), n, 1, BENCH_RESULTS="1"))
        report.add("--processes 2", **_drain(lab, fleetcron("--processes", "2"), n, 1))
        report.add("20-byte payload", **_drain(lab, fleetcron(), n, 1, BENCH_PAD="0"))
    return report


def enqueue(lab: Lab, o: Options) -> Report:
    """The bulk call, and 200 concurrent single calls."""
    n = o.n or 50_000
    report = Report("enqueue", n=n)
    for _ in range(o.repeat):
        for subject in chosen(o.peers, fleetcron()):
            with Sample.of(lab, subject, "count") as sample:
                many = sample.tell("enqueue", n)["secs"]
                count = 20_000 if subject.name == "fleetcron" else 4_000
                single = sample.tell("single", count, 200)["secs"]
            report.add(subject.name, many_rate=round(n / many), single_rate=round(count / single))
    fastest = max(
        (name for name in report.samples if name != "fleetcron"),
        key=lambda p: report.median(p, "many_rate"),
        default=None,
    )
    if fastest:
        report.ratio(f"enqueue, many: fleetcron / {fastest} (fastest)", "fleetcron", fastest, "many_rate", 1.0)
    report.bar("200 concurrent single submits, per second", report.median("fleetcron", "single_rate"), 10_000)
    return report


def sqlite(lab: Lab, o: Options) -> Report:
    """Both on SQLite: huey has no bulk call, so its enqueue is the single one."""
    n = o.n or 20_000
    report = Report("sqlite", n=n)
    for _ in range(o.repeat):
        for subject in chosen(
            "huey" if o.peers == "all" else o.peers, fleetcron()._replace(store="sqlite"), store="sqlite"
        ):
            with Sample.of(lab, subject, "count") as sample:
                enqueued = sample.tell("enqueue", n)
                sample.start()
                report.add(subject.name, enqueue_rate=round(n / enqueued["secs"]), **sample.drain(n))
    report.bar("SQLite drain, per second", report.median("fleetcron", "rate"), 30_000)
    report.ratio("SQLite drain: fleetcron / huey", "fleetcron", "huey", "rate", 4.0)
    return report
