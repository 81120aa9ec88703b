"""`fleetcron demo`: it keeps its promises, says so, leaves nothing behind; and its judge is not blind."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import pytest

from fleetcron import Attempt, Every, Fleet, Miss, State
from fleetcron.demo import pipeline
from fleetcron.demo.facts import (
    Facts,
    Frozen,
    Killed,
    Outage,
    Poison,
    SeenRun,
    SeenSchedule,
    Takeover,
)
from fleetcron.demo.program import conclude
from fleetcron.demo.telling import Teller, tick_rows
from fleetcron.demo.verdicts import judge
from fleetcron.demo.witness import Witnessed
from fleetcron.model import DeadLetter, Misfire

PROMISES = [
    "no tick is lost",
    "no tick runs twice",
    "one owner at a time",
    "a killed worker's run goes on elsewhere",
    "a stale owner's writes are refused",
    "ticks start without a leader",
    "misfire=fire_all",
    "misfire=fire_once",
    "misfire=skip",
    "a poison job is contained",
]

# ── the program ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Demo:
    """A demo that runs, with a temporary folder of its own by which everything that it starts is known."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        env = {name: value for name, value in os.environ.items() if not name.startswith("FLEETCRON_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fleetcron", *words, "demo"],
            env=env | {"TMPDIR": str(folder)}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509  # under nohup it is ignored
        )  # fmt: skip

    def end(self, seconds: float) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        finally:
            self.process.kill()
        return self.process.returncode, out, err

    def nodes(self) -> list[int]:
        """The pids of everything alive that it started, whoever is its parent now."""
        mark, found = str(self.folder), []
        for process in psutil.process_iter():
            try:
                if process.pid != self.process.pid and process.environ().get("TMPDIR") == mark and process.is_running():
                    found += [process.pid] if process.status() != psutil.STATUS_ZOMBIE else []
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


def until(found: Callable[[], Any], what: str, seconds: float = 20.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < give_up_at, f"after {seconds:g}s still not: {what}"
        time.sleep(0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """For what the demo makes."""
    made = tmp_path / "tmp"
    made.mkdir()
    yield made
    assert list(made.iterdir()) == []


@pytest.mark.crash
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def test_every_promise_is_kept_within_a_minute(kind: str, folder: Path, request: pytest.FixtureRequest) -> None:
    words = ["--url", request.getfixturevalue("pg_url")] if kind == "postgres" else []
    began = time.monotonic()
    demo = Demo(folder, "--json", *words)
    code, out, err = demo.end(90)
    assert code == 0, err
    assert time.monotonic() - began < 75
    assert demo.nodes() == []
    found = json.loads(out)
    assert found["kept"]
    assert [verdict["promise"] for verdict in found["verdicts"]] == PROMISES
    printed = [line.split(maxsplit=1) for line in err.splitlines() if line.startswith("  kept ")]
    assert all(any(rest.startswith(promise) for _, rest in printed) for promise in PROMISES), err
    assert {run["schedule"] for run in found["runs"]} >= {"nightly-report", "policy/fire_all", "policy/skip"}
    assert "all 10 promises were kept" in err
    for seen in (
        "kill -9 worker",
        "kill -9 scheduler",
        "kill -9 of all four nodes",
        "dead letter",
        "missed: late",
        "fire_once",
    ):
        assert seen in err
    assert "\x1b" not in err  # no terminal, no colours


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_by_a_signal_it_leaves_nothing(number: signal.Signals, folder: Path) -> None:
    demo = Demo(folder)
    until(lambda: len(demo.nodes()) == 4, "four nodes")
    demo.process.send_signal(number)
    code, out, _ = demo.end(20)
    assert code == 128 + number
    assert f"stopped by {number.name}" in out
    assert demo.nodes() == []


@pytest.mark.crash
def test_killed_itself_it_leaves_no_process(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    until(lambda: len(demo.nodes()) == 4, "four nodes")
    demo.process.kill()
    demo.end(20)
    until(lambda: demo.nodes() == [], "the nodes have ended", 10)


def test_a_database_in_use_is_refused(folder: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    fleet = Fleet(url)
    fleet.job("mine")(lambda: None)

    async def use() -> None:
        async with fleet:
            pass

    asyncio.run(use())
    code, _, err = Demo(folder, "--url", url).end(30)
    assert code == 2
    assert "an empty database" in err and "'mine'" in err


def test_a_database_in_memory_is_refused(folder: Path) -> None:
    code, _, err = Demo(folder, "--url", "sqlite://").end(30)
    assert code == 2
    assert "memory" in err


# ── the pipeline ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_data_is_what_its_readme_says() -> None:
    readme = pipeline.SOURCE.with_name("README.md").read_text()
    assert hashlib.sha256(pipeline.SOURCE.read_bytes()).hexdigest() in readme
    assert "public domain" in readme.lower()


async def test_the_pipeline_reports_a_month(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "PACE", 0)
    extracted = pipeline.extract("2012-02")
    assert (len(extracted["days"]), extracted["dropped"]) == (29, 0)
    text = pipeline.render("2012-02", await pipeline.aggregate(extracted["days"]), None)
    # By hand: awk -F, '/^2012\/02/ {n++; r+=$2; w+=$2>0} END {print n, w, r}' gives 29 19 92.3.
    assert "29 days, 19 of them wet, 92.3 mm of rain" in text
    with pytest.raises(ValueError, match="2016-01"):
        pipeline.extract("2016-01")


def test_nights_are_months_one_after_the_other() -> None:
    night = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
    months = [pipeline.month_of(night + n * pipeline.NIGHT) for n in range(pipeline.MONTHS)]
    assert len(set(months)) == pipeline.MONTHS
    assert all(pipeline.extract(month)["days"] for month in months)
    assert pipeline.month_of(night + pipeline.MONTHS * pipeline.NIGHT) == months[0]


def test_a_report_refuses_an_older_fence(tmp_path: Path) -> None:
    report = tmp_path / "reports" / "2013-07.txt"
    pipeline.publish(report, "one\n", 7)
    pipeline.publish(report, "again\n", 7)  # the same owner may repeat itself
    with pytest.raises(pipeline.StaleFence, match="fence 7"):
        pipeline.publish(report, "stale\n", 6)
    assert pipeline.fence_of(report) == 7
    assert report.read_text().startswith("again\n")
    assert [path.name for path in report.parent.iterdir() if path.suffix == ".draft"] == []


# ── the judge ────────────────────────────────────────────────────────────────────────────────────────────────────────

T0 = datetime(2026, 11, 29, 2, 0, 0, tzinfo=UTC)
EVERY = timedelta(seconds=4)
KILLED, FROZEN, POISONED, BESIDE = 1, 2, 50, 60


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def attempts(*states: str, start: float, fence: int, pid: int = 10) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            number=n + 1, state=state, started_at=at(start + n), finished_at=at(start + n + 0.5), worker=f"host:{pid + n}",
            fence=fence + n,
        )
        for n, state in enumerate(states)
    )  # fmt: skip


def run(
    run_id: int, schedule: str | None, tick: float | None, *states: str, start: float | None = None, **more: Any
) -> SeenRun:
    begin = start if start is not None else tick or 0.0
    return SeenRun(
        id=run_id, job="job", schedule=schedule, tick=None if tick is None else at(tick),
        state=more.pop("state", State.SUCCEEDED), attempts=attempts(*states, start=begin, fence=run_id * 10), **more,
    )  # fmt: skip


def policy(name: Misfire, owed: int = 0) -> SeenSchedule:
    ticks = tuple(T0 + n * EVERY for n in range(5))
    return SeenSchedule(name=f"policy/{name}", misfire=name, grace=timedelta(seconds=1), ticks=ticks, owed=owed)


def miss(schedule: str, first: float, last: float, count: int, reason: str) -> Miss:
    return Miss(
        schedule=schedule, first=at(first), last=at(last), count=count, reason=reason, policy="", decided_at=at(14)
    )


def good() -> Facts:
    """Down from second 1 to 14: the ticks at 4, 8 and 12 find nobody; those at 0 and 16 are on time."""
    nightly = SeenSchedule(
        name="nightly-report", misfire="fire_all", grace=timedelta(seconds=60), ticks=(at(-10), at(-5), at(0))
    )
    runs = [
        run(KILLED, "nightly-report", -10, "lost", "succeeded", result={"extracted_by": 10, "published_by": 11}),
        run(FROZEN, "nightly-report", -5, "lost", "succeeded"),
        run(3, "nightly-report", 0, "succeeded"),
        *(run(10 + n, "policy/fire_all", 4 * n, "succeeded", start=15 if n in (1, 2, 3) else None) for n in range(5)),
        run(20, "policy/fire_once", 0, "succeeded"),
        run(23, "policy/fire_once", 12, "succeeded", start=15, result={"missed": 2}),
        run(24, "policy/fire_once", 16, "succeeded"),
        run(21, "policy/fire_once", 4, state=State.MISSED),
        run(30, "policy/skip", 0, "succeeded"),
        run(34, "policy/skip", 16, "succeeded"),
        run(POISONED, None, None, "lost", "lost", "lost", state=State.FAILED),
        run(BESIDE, None, None, "lost", "succeeded"),
    ]
    letter = DeadLetter(
        run_id=POISONED, job="poison", schedule=None, tenant="", attempts=3, error="worker died", died_at=at(3)
    )
    witnessed = [
        Witnessed(run_id=seen.id, attempt=a.number, fence=a.fence or 0, pid=1, what="done")
        for seen in runs
        for a in seen.attempts
        if a.state == "succeeded"
    ]
    return Facts(
        schedules=(nightly, policy("fire_all"), policy("fire_once"), policy("skip")),
        runs=tuple(runs),
        misses=(miss("policy/fire_once", 4, 8, 2, "coalesced"), miss("policy/skip", 4, 12, 3, "late")),
        letters=(letter,),
        witnessed=(*witnessed, Witnessed(run_id=FROZEN, attempt=1, fence=20, pid=10, what="stopped")),
        killed=Killed(run_id=KILLED, pid=10),
        takeover=Takeover(tick=at(-5), killed_at=at(-5.5), old_term=1, new_term=2, led_again_at=at(-4)),
        frozen=Frozen(run_id=FROZEN, pid=10, fence=20, report_fence=21, refused=True),
        outage=Outage(down_at=at(1), up_at=at(14)),
        poison=Poison(run_id=POISONED, max_attempts=3, deaths=3, bystanders=(BESIDE,)),
    )


def changed(facts: Facts, run_id: int, **fields: Any) -> Facts:
    """With other fields in one run."""
    runs = [msgspec.structs.replace(seen, **fields) if seen.id == run_id else seen for seen in facts.runs]
    return msgspec.structs.replace(facts, runs=tuple(runs))


def without(facts: Facts, run_id: int) -> Facts:
    return msgspec.structs.replace(facts, runs=tuple(seen for seen in facts.runs if seen.id != run_id))


def having(facts: Facts, **fields: Any) -> Facts:
    return msgspec.structs.replace(facts, **fields)


def part(facts: Facts, name: str, **fields: Any) -> Facts:
    """With other fields in one of its parts."""
    return having(facts, **{name: msgspec.structs.replace(getattr(facts, name), **fields)})


class Case(NamedTuple):
    """How the facts are doctored, which promises that breaks, and what must be said of it."""

    name: str
    facts: Facts
    broken: Sequence[str]
    said: str


def cases() -> Iterator[Case]:
    facts = good()
    lost, twice, owner = PROMISES[:3]
    yield Case("a tick vanished", without(facts, 3), [lost], "nightly-report 02:00:00 neither ran nor was recorded")
    yield Case("a tick failed", changed(facts, 3, state=State.FAILED), [lost], "02:00:00 neither ran")
    yield Case(
        "a record counts too much",
        having(facts, misses=(facts.misses[0], miss("policy/skip", 4, 12, 4, "late"))),
        [lost],
        "count 4 ticks, 3 did not run",
    )
    again = run(99, "nightly-report", 0, "succeeded")
    yield Case("a tick has two runs", having(facts, runs=(*facts.runs, again)), [twice], "02:00:00 has 2 runs")
    done = Witnessed(run_id=3, attempt=2, fence=31, pid=1, what="done")
    yield Case("done by two", having(facts, witnessed=(*facts.witnessed, done)), [twice], "run 3 was done 2 times")
    killed = facts.run(KILLED)
    assert killed is not None
    early = msgspec.structs.replace(killed.attempts[1], started_at=at(-9.9))
    yield Case(
        "owners overlap", changed(facts, KILLED, attempts=(killed.attempts[0], early)), [owner], "started before"
    )
    low = msgspec.structs.replace(killed.attempts[1], fence=9)
    yield Case(
        "a fence falls", changed(facts, KILLED, attempts=(killed.attempts[0], low)), [owner], "fence 9 follows 10"
    )
    yield Case(
        "extract was repeated", changed(facts, KILLED, result={"extracted_by": 11, "published_by": 11}), [PROMISES[3]],
        "extract was done by 11",
    )  # fmt: skip
    yield Case(
        "nobody was killed",
        changed(facts, KILLED, attempts=killed.attempts[1:]),
        [PROMISES[3]],
        "its attempts are succeeded",
    )
    yield Case(
        "a stale write came through", part(facts, "frozen", refused=False), [PROMISES[4]], "fence 20 was accepted"
    )
    yield Case("a stale report stands", part(facts, "frozen", report_fence=20), [PROMISES[4]], "bears fence 20")
    slept = Witnessed(run_id=FROZEN, attempt=1, fence=20, pid=10, what="done")
    yield Case(
        "the sleeper finished", having(facts, witnessed=(*facts.witnessed[:-1], slept)), [PROMISES[4]], "ended as done"
    )
    yield Case(
        "a late start",
        changed(facts, FROZEN, attempts=attempts("lost", "succeeded", start=-3.5, fence=20)),
        [PROMISES[5]],
        "1.500 s late",
    )
    yield Case("the term stood", part(facts, "takeover", new_term=1), [PROMISES[5]], "term 1 follows term 1")
    short = part(facts, "outage", up_at=at(12.5))
    yield Case("too short an outage", short, PROMISES[6:9], "covered 2 ticks")
    yield Case("fire_all left one out", without(facts, 12), [lost, PROMISES[6]], "02:00:08 did not run")
    two = having(facts, runs=(*facts.runs, run(22, "policy/fire_once", 8, "succeeded", start=15)))
    yield Case("fire_once fired twice", two, [lost, PROMISES[7]], "2 ticks of the outage ran late")
    yield Case(
        "fire_once was not told", changed(facts, 23, result={"missed": 0}), [PROMISES[7]], "told of 0 missed ticks"
    )
    other = miss("policy/fire_once", 4, 8, 2, "late")
    yield Case("another reason", having(facts, misses=(other, facts.misses[1])), [PROMISES[7]], "02:00:04: late")
    ran = having(facts, runs=(*facts.runs, run(33, "policy/skip", 12, "succeeded", start=15)))
    yield Case("skip ran an old one", ran, [lost, PROMISES[8]], "started 3.000 s late")
    yield Case("the poison lives", changed(facts, POISONED, state=State.RETRYING), [PROMISES[9]], "is retrying")
    yield Case("no dead letter", having(facts, letters=()), [PROMISES[9]], "dead letters: none")
    yield Case("a massacre", part(facts, "poison", deaths=7), [PROMISES[9]], "7 workers died")
    yield Case(
        "a bystander fell", changed(facts, BESIDE, state=State.FAILED), [PROMISES[9]], "1 of the 1 runs beside it"
    )


def test_good_facts_are_good() -> None:
    assert [(verdict.promise, verdict.kept) for verdict in judge(good())] == [(promise, True) for promise in PROMISES]


def test_what_fire_once_owes_is_not_forgotten() -> None:
    """Two workers judged the outage at once: the run was not told, the next one will be."""
    facts = changed(good(), 23, result={"missed": 0})
    owing = having(facts, schedules=(*facts.schedules[:2], policy("fire_once", owed=2), facts.schedules[3]))
    assert all(verdict.kept for verdict in judge(owing))


def test_work_that_was_done_but_lost_may_be_done_again() -> None:
    """A worker died between the end of the work and the word of it: at least once, and the history knows."""
    facts = good()
    done = Witnessed(run_id=KILLED, attempt=1, fence=10, pid=10, what="done")
    assert all(verdict.kept for verdict in judge(having(facts, witnessed=(*facts.witnessed, done))))


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_a_broken_promise_is_seen(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = [verdict for verdict in judge(case.facts) if not verdict.kept]
    assert [verdict.promise for verdict in broken] == list(case.broken)
    assert any(case.said in verdict.seen for verdict in broken), [verdict.seen for verdict in broken]
    assert conclude(case.facts, tmp_path, str, Teller(), as_json=False) == 1
    out = capsys.readouterr().out
    for verdict in broken:
        assert f"BROKEN {verdict.promise}" in out and verdict.expected in out and verdict.seen in out


def test_kept_promises_end_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude(good(), tmp_path, str, Teller(), as_json=False) == 0
    assert "BROKEN" not in capsys.readouterr().out


def test_every_tick_has_its_row() -> None:
    facts = without(good(), 3)
    rows = [(row.tick, row.schedule, row.late, row.outcome) for row in tick_rows(facts, str)]
    assert ("02:00:00", "nightly-report", "-", "LOST: no run, no record") in rows
    assert ("02:00:08", "policy/fire_once", "-", "missed: coalesced") in rows
    assert ("02:00:12", "policy/fire_once", "3000", "succeeded, for 2 missed ones too") in rows
    assert ("02:00:12", "policy/skip", "-", "missed: late") in rows
    assert [row[3] for row in rows if row[1] == "poison"] == ["lost", "lost", "lost, dead letter"]
    named = {(tick, schedule.name) for schedule in facts.schedules for tick in schedule.ticks}
    assert {(tick, name) for tick, name, *_ in rows if tick} == {(f"{tick:%H:%M:%S}", name) for tick, name in named}
    assert Every(EVERY, T0).upcoming(T0, 4) == list(policy("skip").ticks[1:])
