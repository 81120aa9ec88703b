"""What lies in the store must not slow down what is due: a backlog of later runs, dead rows behind an old snapshot, a long history."""

from __future__ import annotations

import time
from itertools import pairwise

import psycopg

from benchmarks.lab import Lab
from benchmarks.report import Report
from benchmarks.sample import Sample
from benchmarks.scenarios import Options
from benchmarks.subjects import Subject, chosen, fleetcron


def backlog(lab: Lab, o: Options) -> Report:
    """Drain 20,000 due runs with 0, 10,000, 1,000,000 and 10,000,000 pending for tomorrow; peers with 0 and 1,000,000."""
    n, most = 20_000, o.n or 10_000_000
    ours = fleetcron()
    report = Report("backlog", n=n, most=most)
    for subject in chosen(o.peers, ours):
        if subject.later is None:
            continue
        sizes = [0, 10_000, 1_000_000, 10_000_000] if subject is ours else [0, 1_000_000]
        loaded, keep = 0, False
        for size in [size for size in sizes if size <= most]:
            for nth in range(o.repeat):
                with Sample.of(lab, subject, "count", keep=keep) as sample:
                    if not keep:
                        sample.tell("enqueue", 1)  # makes what `later` refers to
                        sample.start()
                        sample.drain(1)
                        sample.again()
                    keep = True
                    if nth == 0 and size > loaded:
                        _load(lab, subject, size - loaded)
                        loaded = size
                    sample.tell("enqueue", n)
                    lab.settle(subject.database)
                    sample.start()
                    report.add(f"{subject.name}, {size:,} later", **sample.drain(n))
    top = f"fleetcron, {most:,} later"
    report.ratio(f"drain with {most:,} pending later / none", top, "fleetcron, 0 later", "rate", 0.9)
    for name in {s.split(",")[0] for s in report.samples} - {"fleetcron"}:
        report.ratio(
            f"{name}: drain with 1,000,000 later / none", f"{name}, 1,000,000 later", f"{name}, 0 later", "rate"
        )
    return report


def _load(lab: Lab, subject: Subject, n: int) -> None:
    assert subject.later is not None
    with lab.connect(subject.database) as c:
        for begin in range(0, n, 500_000):
            c.execute((subject.later % {"n": min(500_000, n - begin)}).encode())


def snapshot(lab: Lab, o: Options) -> Report:
    """Keep 3,000 runs waiting while another session holds a snapshot open, so that no dead row can be removed: runs a second over time."""
    report = Report("snapshot", seconds=o.seconds, waiting=3000)
    for _ in range(max(1, o.repeat // 2)):
        for subject in chosen(o.peers, fleetcron()):
            with Sample.of(lab, subject, "count") as sample, psycopg.connect(sample.url) as holder:
                holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                sample.tell("enqueue", 500)
                lab.settle(subject.database)
                holder.execute("SELECT 1 FROM pg_class LIMIT 1")
                sample.spawn(*subject.adapter, "feed", "3000")
                sample.start()
                while sample.counted()[0] == 0:
                    time.sleep(0.05)
                counts, began = [sample.counted()[0]], time.monotonic()
                for tenth in range(1, o.seconds // 10 + 1):
                    time.sleep(max(0.0, began + tenth * 10 - time.monotonic()))
                    sample.check()
                    counts.append(sample.counted()[0])
            rates = [(b - a) / 10 for a, b in pairwise(counts)]
            report.add(subject.name, first=rates[0], last=rates[-1], kept=rates[-1] / rates[0], by_10_s=rates)
    report.bar("old snapshot: last 10 s / first 10 s", report.median("fleetcron", "kept"), 0.8)
    return report


def history(lab: Lab, o: Options) -> Report:
    """Drain 50,000 with an empty history, and with 5,000,000 finished runs of which the older half is being pruned."""
    finished, n = o.n or 5_000_000, 50_000
    report = Report("history", finished=finished, n=n)
    for full in (False, True):
        with Sample.of(lab, fleetcron(), "count") as made:
            made.tell("enqueue", 1)
            if full:
                with lab.connect(made.subject.database) as c:
                    c.execute(
                        "INSERT INTO fleetcron.run (created_at, due_at, started_at, finished_at, priority, job, queue, tenant, payload, "
                        "state, attempt, fence, worker) SELECT t, t, t, t, 5, 'noop', 'default', '', json_build_object('n', i), "
                        "'succeeded', 1, i, 1 FROM (SELECT i, now() - interval '60 days' + i * interval '60 days' / %(n)s AS t "
                        "FROM generate_series(1, %(n)s) i) x",
                        {"n": finished},
                    )
        for _ in range(o.repeat):
            with Sample.of(lab, fleetcron(), "count", keep=True) as sample:
                sample.tell("enqueue", n)
                lab.settle(sample.subject.database)
                before = _finished(lab, sample)
                sample.start()
                figures = sample.drain(n)
                report.add(
                    "5,000,000 finished" if full else "empty",
                    pruned=max(0, before + n - _finished(lab, sample)),
                    **figures,
                )
    report.ratio("drain with 5,000,000 finished, pruning / empty history", "5,000,000 finished", "empty", "rate")
    return report


def _finished(lab: Lab, sample: Sample) -> int:
    with lab.connect(sample.subject.database) as c:
        return int(c.execute("SELECT count(*) FROM fleetcron.run").fetchall()[0][0])
