"""A crew of programs that behave badly."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from fleetcron.cli import crew
from fleetcron.cli.crew import Crew, Link
from fleetcron.errors import ConfigError


def python(code: str) -> Callable[[Link], list[str]]:
    return lambda link: [sys.executable, "-c", code, str(link)]


async def run_until(members: Crew, done: Callable[[], bool], ready: Callable[[], None] = lambda: None) -> None:
    """Let it run until `done`, for at most 20 s, and then stop it."""
    running = asyncio.create_task(members.run(ready))
    give_up_at = time.monotonic() + 20
    while not done() and time.monotonic() < give_up_at:
        await asyncio.sleep(0.02)
    assert done()
    members.stop()
    await asyncio.wait_for(running, 10)


async def test_children_that_die_at_once_are_replaced_ever_later(caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    await run_until(Crew("n", python("raise SystemExit(3)"), 1, timedelta(0)), lambda: len(caplog.records) == 4)
    said = [record.getMessage() for record in caplog.records]
    assert [text.rpartition(" in ")[2] for text in said] == ["0.2s", "0.4s", "0.8s", "1.6s"]
    assert all("exit code 3" in text for text in said)
    assert time.monotonic() - began > 0.2 + 0.4 + 0.8


async def test_a_program_that_cannot_be_started_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    await run_until(Crew("n", lambda link: ["no-such-program"], 2, timedelta(0)), lambda: len(caplog.records) == 4)
    assert all("could not be started" in record.getMessage() for record in caplog.records)


async def test_ready_is_said_when_all_have_been_ready() -> None:
    said: list[None] = []
    code = "import os, sys, time; os.write(int(sys.argv[1].split(':')[3]), b'.'); time.sleep(60)"
    await run_until(Crew("n", python(code), 2, timedelta(0)), lambda: len(said) == 1, lambda: said.append(None))
    dumb = Crew("n", python("import time; time.sleep(0.3)"), 1, timedelta(0))
    said.clear()
    ended = time.monotonic() + 1.5
    await run_until(dumb, lambda: time.monotonic() > ended, lambda: said.append(None))
    assert said == []


async def test_a_child_that_does_not_end_is_killed_after_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "PATIENCE", 0.5)
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "os.write(int(sys.argv[1].split(':')[3]), b'.'); time.sleep(60)"
    )
    deaf, ready = Crew("n", python(code), 1, timedelta(seconds=0.5)), asyncio.Event()
    running = asyncio.create_task(deaf.run(ready.set))
    await asyncio.wait_for(ready.wait(), 20)
    began = time.monotonic()
    deaf.stop()
    await asyncio.wait_for(running, 10)
    assert 0.9 < time.monotonic() - began < 5


def test_a_link_survives_the_command_line() -> None:
    link = Link("0af3", 12, 7, 9)
    assert Link.read(str(link)) == link
    with pytest.raises(ConfigError, match="not by people"):
        Link.read("0af3:12:7")
