"""What the demo prints: a calm commentary, then the ticks as a table, and the verdicts. Plain text without a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleetcron.clock import monotonic
from fleetcron.demo.facts import Facts, SeenRun, SeenSchedule
from fleetcron.demo.verdicts import Verdict
from fleetcron.model import State

PLAIN_WIDTH = 140
"""Columns where there is no terminal to ask: a log, a pipe."""

Name = Callable[[str | None], str]
"""`host:pid` in the demo's words."""


class Row(NamedTuple):
    """One attempt, or one tick that did not run."""

    tick: str
    schedule: str
    started: str
    late: str
    worker: str
    attempt: str
    outcome: str


class Teller:
    """`error`: to stderr, because stdout carries a JSON document."""

    def __init__(self, *, error: bool = False) -> None:
        console = Console(stderr=error, highlight=False)
        self._console = (
            console if console.is_terminal else Console(stderr=error, highlight=False, width=PLAIN_WIDTH, no_color=True)
        )
        self._began = monotonic()

    def seconds(self) -> float:
        """Since the demo began."""
        return monotonic() - self._began

    def headline(self, text: str) -> None:
        self._console.print(Text(text, style="bold"), soft_wrap=True)

    def act(self, title: str) -> None:
        """A new act."""
        self._console.print()
        self._console.print(Text(title, style="bold cyan"), soft_wrap=True)

    def say(self, text: str, style: str = "") -> None:
        """What happened just now."""
        self._console.print(Text.assemble((f"{self.seconds():6.1f} s  ", "dim"), (text, style)), soft_wrap=True)

    def strike(self, text: str) -> None:
        """What the demo does to its fleet."""
        self.say(text, "yellow")

    def aside(self, text: str) -> None:
        """Without a time: an explanation, a file."""
        for line in text.splitlines():
            self._console.print(Text(f"          {line}", style="dim"), soft_wrap=True)

    def ticks(self, rows: Sequence[Row]) -> None:
        """The table of everything that was due."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
        for title in ("tick", "schedule", "started", "late ms", "worker", "attempt", "outcome"):
            table.add_column(
                title, justify="right" if title in ("late ms", "attempt") else "left", no_wrap=title != "outcome"
            )
        for row in rows:
            style = "red" if row.outcome.startswith("lost") else "yellow" if row.outcome.startswith("missed") else ""
            table.add_row(*(Text(cell, style=style) for cell in row))
        self._console.print(table)

    def verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """One line per promise; for a broken one, what was expected and what was seen."""
        width = max(len(verdict.promise) for verdict in verdicts)
        for verdict in verdicts:
            mark, style = ("kept", "green") if verdict.kept else ("BROKEN", "bold red")
            told = (verdict.seen, "dim") if verdict.kept else f"expected: {verdict.expected}"
            line = Text.assemble((f"  {mark:<7}", style), f"{verdict.promise:<{width}}  ", told)
            self._console.print(line, soft_wrap=True)
            if not verdict.kept:
                self._console.print(Text(f"{'':<{width + 11}}seen:     {verdict.seen}", style="red"), soft_wrap=True)


def tick_rows(facts: Facts, name: Name) -> list[Row]:
    """Every tick by its instant, an attempt a row; then the poison job."""
    found = sorted(
        ((tick, schedule) for schedule in facts.schedules for tick in schedule.ticks),
        key=lambda pair: (pair[0], pair[1].name),
    )
    rows = [row for tick, schedule in found for row in _tick(facts, schedule, tick, name)]
    poison = facts.run(facts.poison.run_id)
    return rows + (list(_attempts(poison, "", "poison", name)) if poison is not None else [])


def _tick(facts: Facts, schedule: SeenSchedule, tick: datetime, name: Name) -> Iterator[Row]:
    runs = [run for run in facts.runs_of(schedule) if run.tick == tick]
    for run in runs:
        yield from _attempts(run, _clock(tick), schedule.name, name)
    if not runs:
        miss = facts.missed(schedule).get(tick)
        yield Row(
            _clock(tick),
            schedule.name,
            "-",
            "-",
            "-",
            "-",
            f"missed: {miss.reason}" if miss else "LOST: no run, no record",
        )


def _attempts(run: SeenRun, tick: str, schedule: str, name: Name) -> Iterator[Row]:
    if not run.attempts:
        yield Row(tick, schedule, "-", "-", "-", "-", str(run.state))
    for attempt in run.attempts:
        start = attempt.started_at
        late = "-" if start is None or run.tick is None else f"{(start - run.tick).total_seconds() * 1000:.0f}"
        outcome = attempt.state
        if attempt is run.attempts[-1]:
            outcome += told(run) + (", dead letter" if run.state == State.FAILED else "")
        yield Row(
            tick,
            schedule,
            "-" if start is None else _clock(start, fine=True),
            late,
            name(attempt.worker),
            str(attempt.number),
            outcome,
        )


def told(run: SeenRun) -> str:
    """What the run was told of ticks that were judged away in its favour."""
    missed = run.result.get("missed", 0) if isinstance(run.result, dict) else 0
    return f", for {missed} missed ones too" if missed else ""


def _clock(moment: datetime, *, fine: bool = False) -> str:
    return f"{moment:%H:%M:%S}" + (f".{moment.microsecond // 1000:03d}" if fine else "")
