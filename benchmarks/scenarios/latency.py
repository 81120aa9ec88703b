"""How soon after the enqueue, or after the due instant, a handler starts."""

from __future__ import annotations

import json
import subprocess
import time

from benchmarks.lab import PEERS, Lab
from benchmarks.report import LOWER, Report, spread
from benchmarks.sample import Sample
from benchmarks.scenarios import Options
from benchmarks.subjects import ADAPTERS, Subject, chosen, fleetcron

WARM_UP = 3.0


def pickup(lab: Lab, o: Options) -> Report:
    """One run every 50 ms, an idle worker: from the return of the enqueue call to the start of the handler, other process, same clock."""
    n = o.n or 200
    report = Report("pickup", n=n, gap_s=0.05)
    for _ in range(o.repeat):
        for subject in chosen(o.peers, fleetcron()):
            with Sample.of(lab, subject, "log") as sample:
                sample.start()
                time.sleep(WARM_UP)
                sample.tell("timed", n, 0.05)
                starts, sent = sample.wait_for_starts(n, 10), sample.sent()
            report.add(subject.name, missing=n - len(starts), **spread([starts[i] - sent[i] for i in starts]))
    report.bar("pick-up p50, ms", report.median("fleetcron", "p50_ms"), 1.0, LOWER)
    report.bar("pick-up p99, ms", report.median("fleetcron", "p99_ms"), 2.5, LOWER)
    report.ratio("pick-up p50: fleetcron / graphile-worker", "fleetcron", "graphile", "p50_ms", 1.0, LOWER)
    report.ratio("pick-up p99: fleetcron / graphile-worker", "fleetcron", "graphile", "p99_ms", 1.0, LOWER)
    return report


def precision(lab: Lab, o: Options) -> Report:
    """Runs due at distinct instants: how late each starts, and whether any starts early. APScheduler has one process and no fleet."""
    report = Report("precision", n=[200, 2000], span_s=10)
    for _ in range(o.repeat):
        for subject in chosen(o.peers, fleetcron()):
            report.add(subject.name, **_late(lab, subject, 200))
        for n in (200, 2000):
            for store in ("postgres", "sqlite"):
                name = f"fleetcron, {store}, {n:,}"
                report.add(name, **_late(lab, fleetcron()._replace(store=store), n))
        if o.peers and (PEERS / "venv/bin/python").exists():
            for store in ("memory", "postgres"):
                report.add(f"apscheduler, {store}", **_apscheduler(lab, store, 200))
    for name in [name for name in report.samples if name.startswith("fleetcron,")]:
        report.bar(f"start precision p99, ms: {name}", report.median(name, "p99_ms"), 3.0, LOWER)
        report.bar(f"started early: {name}", max(s["early"] for s in report.samples[name]), 0, LOWER)
    return report


def _late(lab: Lab, subject: Subject, n: int) -> dict[str, float]:
    with Sample.of(lab, subject, "log") as sample:
        sample.start()
        time.sleep(WARM_UP)
        sample.tell("scheduled", n, 10.0)
        starts, sent = sample.wait_for_starts(n, 20), sample.sent()
    late = [starts[i] - sent[i] for i in starts]
    return {"missing": n - len(starts), "early": sum(x < 0 for x in late), **spread(late)}


def _apscheduler(lab: Lab, store: str, n: int) -> dict[str, float]:
    url = lab.fresh("bench_apscheduler")
    done = subprocess.run(
        [str(PEERS / "venv/bin/python"), str(ADAPTERS / "peer_apscheduler.py"), store, str(n), "10"],
        env={"BENCH_DSN": url, "BENCH_DIR": str(lab.folder)},
        cwd=ADAPTERS,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    late = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))["late"]
    return {"missing": n - len(late), "early": sum(x < 0 for x in late), **spread(late)}


def herd(lab: Lab, o: Options) -> Report:
    """2,000 runs due at one instant, 2 workers of 1,000 slots each."""
    n = o.n or 2000
    report = Report("herd", n=n, workers=2, slots=1000)
    for _ in range(o.repeat):
        with Sample.of(lab, fleetcron(), "log") as sample:
            sample.start(2)
            time.sleep(WARM_UP)
            sample.tell("scheduled", n, 0, 6)
            starts, sent = sample.wait_for_starts(n, 20), sample.sent()
        late = [starts[i] - sent[i] for i in starts]
        report.add("fleetcron", missing=n - len(starts), early=sum(x < 0 for x in late), **spread(late))
    report.bar("2,000 at one instant: last start, ms after it", report.median("fleetcron", "max_ms"), 150, LOWER)
    report.bar("2,000 at one instant: started early", max(s["early"] for s in report.samples["fleetcron"]), 0, LOWER)
    return report
