"""python -m benchmarks.render: the tables and plots of docs/performance.md, from benchmarks/results/*.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import capacity

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "performance.md"
SCALE = HERE.parent / "docs" / "explanation" / "scale.md"
PLOTS = HERE.parent / "docs" / "images"
BEGIN, END = "<!-- results: written by python -m benchmarks.render -->", "<!-- end of results -->"
SHOWN = {
    "drain": ["rate", "enqueue_rate", "us_worker", "us_store"],
    "drain-2": ["rate", "us_worker", "us_store"],
    "variants": ["rate", "us_worker", "us_store"],
    "enqueue": ["many_rate", "single_rate"],
    "pickup": ["p50_ms", "p99_ms", "max_ms"],
    "precision": ["p50_ms", "p99_ms", "max_ms", "early", "missing"],
    "herd": ["p50_ms", "p99_ms", "max_ms", "early"],
    "backlog": ["rate", "us_worker", "us_store"],
    "snapshot": ["first", "last", "kept"],
    "schedules": ["ticks_per_s", "register_rate", "take_over_s", "memory_mib"],
    "tenants": ["rate", "us_worker", "us_store"],
    "idle": ["queries_per_s", "cpu_percent"],
    "wal": ["bytes", "bytes_insert", "bytes_run", "commits_per_run"],
    "history": ["rate", "pruned"],
    "sqlite": ["rate", "enqueue_rate", "us_worker"],
    "startup": ["import_ms", "help_ms"],
}
PLOTTED = {"drain": "rate", "enqueue": "many_rate", "pickup": "p99_ms", "wal": "bytes"}
WORDS = {
    "rate": "runs/s",
    "enqueue_rate": "enqueue/s",
    "many_rate": "bulk call, runs/s",
    "single_rate": "200 single calls at a time, runs/s",
    "us_worker": "worker CPU, µs a run",
    "us_store": "server CPU, µs a run",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "max_ms": "worst, ms",
    "kept": "last / first",
    "first": "first 10 s, runs/s",
    "last": "last 10 s, runs/s",
    "bytes": "WAL bytes a run",
    "bytes_insert": "of these the insert",
    "bytes_run": "and claim to history",
    "commits_per_run": "commits a run",
    "ticks_per_s": "ticks/s",
    "register_rate": "registered/s",
    "take_over_s": "take-over, s",
    "memory_mib": "leader's memory, MiB",
    "queries_per_s": "queries/s",
    "cpu_percent": "CPU, %",
    "import_ms": "import, ms",
    "help_ms": "--help, ms",
}


def results() -> dict[str, dict[str, Any]]:
    return {name: json.loads(path.read_text()) for name in SHOWN if (path := RESULTS / f"{name}.json").exists()}


def bars(found: dict[str, dict[str, Any]]) -> str:
    rows = ["| measure | bar | reached | |", "|---|---|---|---|"]
    for one in found.values():
        for bar in one["bars"]:
            sign = "≥" if bar["better"] == "higher" else "≤"
            rows.append(
                f"| {bar['what']} | {sign} {_number(bar['bar'])} | {_number(bar['value'])} | {'met' if bar['met'] else '**missed**'} |"
            )
    return "\n".join(rows)


def table(name: str, one: dict[str, Any]) -> str:
    columns = [c for c in SHOWN[name] if any(c in m for m in one["medians"].values())]
    rows = [
        f"| {name} | " + " | ".join(WORDS.get(c, c) for c in columns) + " | samples |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for subject, medians in one["medians"].items():
        cells = [_number(medians[c]) if c in medians else "" for c in columns]
        rows.append(f"| {subject} | " + " | ".join(cells) + f" | {len(one['samples'][subject])} |")
    return "\n".join(rows)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def plot(name: str, one: dict[str, Any], measure: str) -> None:
    import matplotlib as mpl  # lazy: only who renders needs it

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fleetcron"
    from matplotlib import pyplot  # lazy: after use()

    found = sorted(((m[measure], s) for s, m in one["medians"].items() if measure in m and "," not in s))
    figure, axes = pyplot.subplots(figsize=(6.4, 0.5 + 0.36 * len(found)))
    axes.barh(
        [s for _, s in found],
        [v for v, _ in found],
        color=["#2563eb" if s == "fleetcron" else "#94a3b8" for _, s in found],
    )
    axes.bar_label(axes.containers[0], labels=[f" {_number(v)}" for v, _ in found], fontsize=8)
    axes.set_title(f"{name}: {WORDS.get(measure, measure)}", fontsize=10, loc="left")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_xticks([])
    axes.margins(x=0.15)
    figure.tight_layout()
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"performance-{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    found = results()
    parts = [BEGIN, "", bars(found), ""]
    for name, one in found.items():
        when, load = one["at"][:10], one["machine"].get("load", [])
        parts += [f"### {name}", ""]
        if name in PLOTTED:
            plot(name, one, PLOTTED[name])
            parts += [f"![{name}](images/performance-{name}.svg)", ""]
        parts += [
            table(name, one),
            "",
            f"{when}; {', '.join(f'{k} {v}' for k, v in one['parameters'].items())}; load after it {load}.",
            "",
        ]
        parts += [f"* {note}" for note in one["notes"]] + ([""] if one["notes"] else [])
    fill(PAGE, parts)
    if {"drain", "wal"} <= found.keys():
        fill(SCALE, [BEGIN, "", capacity.page(), ""])


def fill(path: Path, parts: list[str]) -> None:
    """Put the parts between the marks of a page."""
    before, rest = path.read_text().split(BEGIN, 1)
    path.write_text(before + "\n".join([*parts, END]) + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()
