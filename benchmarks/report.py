"""What a scenario returns: samples, medians, ratios, and the bars."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab

HIGHER, LOWER = "higher", "lower"


class Report:
    """Samples by subject; `bar` says what was asked for and what was reached."""

    def __init__(self, scenario: str, **parameters: Any) -> None:
        self.scenario, self.parameters = scenario, parameters
        self.samples: dict[str, list[dict[str, Any]]] = {}
        self.bars: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def add(self, subject: str, **values: Any) -> None:
        self.samples.setdefault(subject, []).append(values)
        print(f"  {self.scenario} {subject}: {json.dumps(values)}", file=sys.stderr, flush=True)

    def median(self, subject: str, measure: str) -> float:
        return statistics.median(sample[measure] for sample in self.samples[subject] if measure in sample)

    def medians(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for subject, samples in self.samples.items():
            numeric = {
                k for s in samples for k, v in s.items() if isinstance(v, int | float) and not isinstance(v, bool)
            }
            found[subject] = {k: round(self.median(subject, k), 4) for k in sorted(numeric)}
        return found

    def bar(self, what: str, value: float, bar: float, better: str = HIGHER) -> None:
        met = value >= bar if better == HIGHER else value <= bar
        self.bars.append({"what": what, "value": round(value, 4), "bar": bar, "better": better, "met": met})

    def ratio(
        self, what: str, over: str, under: str, measure: str, bar: float | None = None, better: str = HIGHER
    ) -> None:
        """The ratio of two medians of this run, if both were measured."""
        if over in self.samples and under in self.samples:
            value = self.median(over, measure) / self.median(under, measure)
            if bar is None:
                self.notes.append(f"{what}: {value:.2f}")
            else:
                self.bar(what, value, bar, better)

    def document(self, lab: Lab | None) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": lab.machine() if lab else {},
            "postgres": lab.settings() if lab else {},
            "parameters": self.parameters,
            "medians": self.medians(),
            "bars": self.bars,
            "notes": self.notes,
            "samples": self.samples,
        }

    def write(self, path: Path, lab: Lab | None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.document(lab), indent=1) + "\n")


def spread(values: list[float]) -> dict[str, float]:
    """Seconds as milliseconds: p50, p99, max, min."""
    ordered = sorted(values)

    def at(q: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(q * len(ordered)))] * 1e3, 3)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0), "min_ms": at(0.0), "count": len(ordered)}
