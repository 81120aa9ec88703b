"""Whatever is asked for wrongly gets a clear error at the edge: its type, what is wrong, and what to do; and nothing is written."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from fleetcron import (
    ConfigError,
    Cron,
    Every,
    Fleet,
    NotFound,
    Once,
    PayloadError,
    TriggerError,
)
from fleetcron.cli import main
from fleetcron.errors import StoreError

NAIVE = datetime(2026, 1, 2, 3, 4)  # noqa: DTZ001
MINUTELY = Cron("* * * * *")
TEN_MIB = "x" * (10 * 1024 * 1024)
THE_THREE = r'misfire= is required(?s:.*)"fire_all"(?s:.*)"fire_once"(?s:.*)"skip"'

Ask = Callable[[Fleet], Any]


@pytest.fixture
def migrated() -> bool:
    return True


@pytest.fixture
async def fleet(store_url: str) -> AsyncIterator[Fleet]:
    """Open, with the job "work", which takes anything as `a`."""
    fleet = Fleet(store_url)

    @fleet.job("work")
    async def work(a: Any = None) -> None: ...

    async with fleet:
        yield fleet


async def answered(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


async def refused(ask: Ask, fleet: Fleet, error: type[Exception], says: str) -> Exception:
    """It raises exactly this, and leaves nothing behind."""
    with pytest.raises(error, match=says) as caught:
        await answered(ask(fleet))
    assert type(caught.value) is error
    assert await fleet.runs() == [] and await fleet.schedules() == []
    return caught.value


def schedule(trigger: Any = MINUTELY, job: str = "work", payload: Any = None, **options: Any) -> Ask:
    return lambda fleet: fleet.schedule("s", job, trigger, payload, **options)


def declare(**options: Any) -> Ask:
    return lambda fleet: fleet.job("declared", **options)(lambda: None)


NAIVES: dict[str, tuple[str, Ask]] = {
    "submit": ("at", lambda fleet: fleet.submit("work", at=NAIVE)),
    "submit_many": ("at", lambda fleet: fleet.submit_many("work", [{}], at=NAIVE)),
    "due_at": ("at", lambda fleet: fleet.submit_many("work", [{}, {}], due_at=[None, NAIVE])),
    "Once": ("at", lambda fleet: Once(NAIVE)),
    "Every": ("anchor", lambda fleet: Every("1h", anchor=NAIVE)),
    "next": ("after", lambda fleet: MINUTELY.next(NAIVE)),
    "latest": ("before", lambda fleet: MINUTELY.latest(NAIVE)),
    "start": ("start", schedule(misfire="skip", start=NAIVE)),
    "end": ("end", schedule(misfire="skip", end=NAIVE)),
    "decorator": ("at", declare(at=NAIVE)),
    "since": ("since", lambda fleet: fleet.runs(since=NAIVE)),
    "until": ("until", lambda fleet: fleet.runs(until=NAIVE)),
}


@pytest.mark.parametrize("where", NAIVES)
async def test_a_naive_datetime(fleet: Fleet, where: str) -> None:
    name, ask = NAIVES[where]
    await refused(
        ask, fleet, TypeError, rf"^{name}: .*(is naive \(no time zone\); say which instant|expected an aware datetime)"
    )


@pytest.mark.parametrize("zone", ["Mars/Base", "", "Europe/../UTC", "+02:00", "europe/berlin "])
async def test_an_unknown_zone(fleet: Fleet, zone: str) -> None:
    for ask in (
        lambda _: Cron("0 9 * * *", tz=zone),
        lambda fleet: fleet.schedule("s", "work", Cron("0 9 * * *", tz=zone), misfire="skip"),
        declare(cron="0 9 * * *", tz=zone, misfire="skip"),
    ):
        error = await refused(ask, fleet, TriggerError, r"^tz: .* IANA (zone )?name such as 'UTC' or 'Europe/Berlin'")
        assert repr(zone) in str(error)


async def test_an_unknown_job(fleet: Fleet) -> None:
    for ask in (
        lambda fleet: fleet.submit("nope"),
        lambda fleet: fleet.submit_many("nope", [{}]),
        schedule(job="nope", misfire="skip"),
        lambda fleet: fleet.schedule_many([("s", "nope", MINUTELY, {}, {"misfire": "skip"})]),
    ):
        await refused(ask, fleet, NotFound, r"^no job is named 'nope': it is registered when .*`fleetcron job add`$")
    for ask, name in (
        (lambda fleet: fleet.run(4711), "4711"),
        (lambda fleet: fleet.cancel(4711), "4711"),
        (lambda fleet: fleet.pause("nope"), "'nope'"),
        (lambda fleet: fleet.resume("nope"), "'nope'"),
        (lambda fleet: fleet.trigger("nope"), "'nope'"),
        (lambda fleet: fleet.unschedule("nope"), "'nope'"),
    ):
        await refused(ask, fleet, NotFound, name)


PAYLOADS: dict[str, tuple[Any, str, str]] = {
    "NUL": ({"a": ["x\x00"]}, r"$.a[0]", r"NUL character"),
    "NUL in a key": ({"a": {"k\x00": 1}}, r"$.a", r"NUL character"),
    "NaN": ({"a": {"b": float("nan")}}, r"$.a.b", r"nan has no JSON form; send None or a string"),
    "infinity": ({"a": 1e999}, r"$.a", r"inf has no JSON form"),
    "set": ({"a": {1}}, r"$.a", r"a set has no JSON form; send a sorted list"),
    "bytes": ({"a": b""}, r"$.a", r"bytes have no JSON form; send text, or base64 of it"),
    "naive": ({"a": NAIVE}, r"$.a", r"a naive datetime; give it a zone"),
    "10 MiB": ({"a": TEN_MIB}, r"$", r"10,485,768 bytes, the limit is 1,048,576 \(max_payload\)"),
    "a list": ([1], r"$", r"list"),
    "unknown parameter": ({"b": 1}, r"$", r"b"),
}


@pytest.mark.parametrize("what", PAYLOADS)
async def test_a_payload(fleet: Fleet, what: str) -> None:
    payload, path, says = PAYLOADS[what]
    for ask in (
        lambda fleet: fleet.submit("work", payload),
        lambda fleet: fleet.submit_many("work", [{"a": 1}, payload]),
        schedule(payload=payload, misfire="skip"),
    ):
        error = await refused(ask, fleet, PayloadError, says)
        assert isinstance(error, PayloadError) and error.path.startswith(path)
        assert str(error).startswith(f"payload at {error.path}: ")


@pytest.mark.parametrize(
    ("delay", "says"), [(-1, "negative"), (timedelta(seconds=-1), "negative"), ("-5s", "not a duration")]
)
async def test_a_negative_delay(fleet: Fleet, delay: Any, says: str) -> None:
    for ask in (
        lambda fleet: fleet.submit("work", delay=delay),
        lambda fleet: fleet.submit_many("work", [{}], delay=delay),
    ):
        await refused(ask, fleet, ConfigError, f"^delay: .*{says}")


async def test_misfire_left_out(fleet: Fleet) -> None:
    for ask in (
        schedule(),
        schedule(Every("1h")),
        schedule(misfire="later"),
        lambda fleet: fleet.schedule_many([("s", "work", MINUTELY, {}, {})]),
        declare(cron="* * * * *"),
        declare(every="1h"),
    ):
        await refused(ask, fleet, ConfigError, THE_THREE)
    await fleet.schedule("once is enough", "work", Once(datetime.fromisoformat("2100-01-01T00:00Z")))


async def test_a_lease_shorter_than_three_heartbeats(store_url: str) -> None:
    for options in ({"lease": 3, "heartbeat": 1.1}, {"heartbeat": "6s"}, {"lease": "2s", "heartbeat": "2s"}):
        with pytest.raises(ConfigError, match=r"^lease \(\d+s\) must be at least 3 × heartbeat \("):
            Fleet(store_url, **options)
        with pytest.raises(ConfigError, match="at least 3 × heartbeat"):
            Fleet(store_url).configure(**options)
    assert Fleet(store_url, lease=3, heartbeat=1).options.heartbeat == timedelta(seconds=1)


COMMANDS: list[tuple[str, int, str]] = [
    ("submit work --at 2026-01-02T03:04", 2, "has no time zone; add Z (UTC) or an offset such as +02:00"),
    ("submit work --delay -5s", 2, "is not a duration"),
    ("submit nope", 1, "no job is named 'nope'"),
    ('submit work --json-payload {"a":NaN}', 2, "not JSON: NaN is no JSON number"),
    (r'submit work --json-payload {"a":"\u0000"}', 2, "payload at $.a: holds a NUL character"),
    ('submit work --json-payload {"a":1e999}', 2, "payload at $.a: inf has no JSON form"),
    ("submit work --json-payload [1]", 2, "payload at $: expected an object"),
    ("job add j --cron 0_9_*_*_* --tz Mars/Base --misfire skip --shell true", 2, "no zone named 'Mars/Base'"),
    ("job add j --every 1h --shell true", 2, "misfire= is required"),
    ("next 0_9_*_*_* --tz Mars/Base", 2, "no zone named 'Mars/Base'"),
    ("run --lease 3s --heartbeat 2s", 2, "must be at least 3 × heartbeat"),
    ("show 4711", 1, "no run"),
    ("pause nope", 1, "nope"),
]


@pytest.mark.parametrize(("words", "code", "says"), COMMANDS)
def test_on_the_command_line(store_url: str, words: str, code: int, says: str) -> None:
    app = Fleet(store_url)
    app.job("work")(lambda a=None: None)
    with app.blocking:
        pass  # the registry knows the job
    line = [word.replace("_", " ") for word in words.split()]
    done = CliRunner().invoke(main, ["--url", store_url, *line], env={"FLEETCRON_APP": None})
    assert (done.exit_code, says in done.stderr) == (code, True), f"{done.exit_code}: {done.output}"
    assert "Traceback" not in done.output
    with app.blocking as fleet:
        assert fleet.runs() == [] and fleet.schedules() == []


def test_ten_mebibytes_on_the_command_line(store_url: str) -> None:
    app = Fleet(store_url)
    app.job("work")(lambda a=None: None)
    with app.blocking:
        pass
    words = ["--url", store_url, "submit", "work", "--json-payload", "-"]
    done = CliRunner().invoke(main, words, env={"FLEETCRON_APP": None}, input=f'{{"a": "{TEN_MIB}"}}')
    assert (done.exit_code, "10,485,768 bytes, the limit is 1,048,576" in done.stderr) == (2, True), done.output[:500]


async def test_a_job_that_is_declared_after_the_fleet_was_opened(store_url: str) -> None:
    async with Fleet(store_url) as fleet:

        @fleet.job(name="too.late")
        async def too_late(n: int = 0) -> None: ...

        for ask in (lambda: fleet.submit(too_late), lambda: fleet.submit_many(too_late, [{"n": 1}, {"n": 2}])):
            with pytest.raises(StoreError, match="a job is registered when a process that declares it starts"):
                await ask()
        assert await fleet.runs() == []
