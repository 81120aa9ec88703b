"""python -m benchmarks SCENARIO: measures, prints JSON (or writes it), and says which bars were met."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks.lab import Lab
from benchmarks.report import Report
from benchmarks.scenarios import Options, care, depth, fleets, latency, throughput

SCENARIOS: dict[str, Callable[[Any, Options], Report]] = {
    "drain": throughput.drain,
    "variants": throughput.variants,
    "enqueue": throughput.enqueue,
    "sqlite": throughput.sqlite,
    "pickup": latency.pickup,
    "precision": latency.precision,
    "herd": latency.herd,
    "backlog": depth.backlog,
    "snapshot": depth.snapshot,
    "history": depth.history,
    "tenants": fleets.tenants,
    "schedules": fleets.schedules,
    "idle": care.idle,
    "wal": care.wal,
    "startup": care.startup,
}


@click.command(help=__doc__)
@click.argument("scenarios", nargs=-1, required=True, type=click.Choice(sorted(SCENARIOS)))
@click.option("--repeat", default=5, show_default=True, help="Samples of each subject, interleaved.")
@click.option("--peers", default="all", show_default=True, help='Comma-separated; "all": those installed; "": none.')
@click.option("--n", type=int, help="Size, instead of the scenario's own.")
@click.option("--workers", default=1, show_default=True, help="Worker processes (drain).")
@click.option("--seconds", default=120, show_default=True, help="How long (snapshot).")
@click.option("--postgres", default=15, show_default=True, help="Major version of the server, if it is here.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for SCENARIO.json; else standard output."
)
def main(
    scenarios: tuple[str, ...],
    repeat: int,
    peers: str,
    n: int | None,
    workers: int,
    seconds: int,
    postgres: int,
    out: Path | None,
) -> None:
    for name in scenarios:
        options = Options(repeat=repeat, peers=peers, n=n, workers=workers, seconds=seconds)
        with Lab.opened(postgres) as lab:
            report = SCENARIOS[name](lab, options)
            if out is None:
                click.echo(json.dumps(report.document(lab), indent=1))
            else:
                report.write(out / f"{name}{f'-{workers}' if workers > 1 else ''}.json", lab)
        for bar in report.bars:
            sign = "≥" if bar["better"] == "higher" else "≤"
            click.echo(
                f"{'met   ' if bar['met'] else 'MISSED'} {bar['what']}: {bar['value']} ({sign} {bar['bar']})", err=True
            )
        for note in report.notes:
            click.echo(f"       {note}", err=True)


if __name__ == "__main__":
    main()
