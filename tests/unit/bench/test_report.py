"""What a benchmark says of itself: medians, ratios, bars."""

from __future__ import annotations

from benchmarks.report import LOWER, Report, spread


def test_medians_ratios_and_bars() -> None:
    report = Report("drain", n=5)
    for ours, theirs in [(10, 5), (30, 10), (20, 100)]:
        report.add("fleetcron", rate=ours)
        report.add("graphile", rate=theirs)
    report.ratio("drain", "fleetcron", "graphile", "rate", 1.0)
    report.ratio("absent", "fleetcron", "nobody", "rate", 1.0)
    report.bar("latency", 3.0, 2.5, LOWER)
    assert [(bar["what"], bar["value"], bar["met"]) for bar in report.bars] == [
        ("drain", 2.0, True),
        ("latency", 3.0, False),
    ]
    document = report.document(None)
    assert document["medians"] == {"fleetcron": {"rate": 20}, "graphile": {"rate": 10}}
    assert len(document["samples"]["fleetcron"]) == 3


def test_spread_is_in_milliseconds() -> None:
    told = spread([i / 1000 for i in range(1, 101)])
    assert (told["p50_ms"], told["p99_ms"], told["max_ms"], told["min_ms"], told["count"]) == (51, 100, 100, 1, 100)
