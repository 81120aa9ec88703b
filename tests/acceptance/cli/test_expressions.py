"""next, explain, version and --help: no database, and a quick start."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.acceptance.cli.program import Program


def test_next_shows_local_time_utc_and_what_the_clocks_do(offline: Program) -> None:
    words = ("next", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28T12:00:00Z", "-n", "2")
    assert offline.json(*words) == [
        {
            "utc": "2026-03-29T01:00:00Z",
            "local": "2026-03-29T03:00:00+02:00",
            "note": (
                "02:30 does not exist on 2026-03-29 in Europe/Berlin (clocks go from 02:00 to 03:00): runs at 03:00"
            ),
        },
        {"utc": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00+02:00", "note": None},
    ]
    shown = offline.run(*words).stdout
    assert "at 02:30 every day (Europe/Berlin)" in shown
    assert "Sun 2026-03-29 03:00:00 +0200" in shown
    assert "02:30 does not exist" in shown


def test_next_takes_macros_intervals_and_hashed_fields(offline: Program) -> None:
    start = ("--from", "2026-01-01T00:00:00Z")
    assert [t["utc"] for t in offline.json("next", "@daily", *start, "-n", "1")] == ["2026-01-02T00:00:00Z"]
    assert [t["utc"] for t in offline.json("next", "every 90s", *start, "-n", "2")] == [
        "2026-01-01T00:01:30Z",
        "2026-01-01T00:03:00Z",
    ]
    assert len(offline.json("next", "H H * * *", "--name", "reports/42", *start)) == 10
    assert offline.json("next", "0 0 30 2 *") == []


def test_explain_says_it_in_words(offline: Program) -> None:
    assert offline.json("explain", "*/5 * * * *") == {
        "trigger": {"type": "cron", "expr": "*/5 * * * *", "tz": "UTC"},
        "explain": "every 5 minutes (UTC)",
    }
    assert offline.run("explain", "every 90s").stdout == "every 90s\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("next", "61 * * * *"), "minute"),
        (("next", "* * *"), "3 fields"),
        (("next", "@daily", "--tz", "Mars/Olympus"), "Mars/Olympus"),
        (("next", "every fish"), "not a duration"),
        (("next", "@daily", "--from", "2026-01-01T00:00:00"), "no time zone"),
        (("next", "@daily", "--from", "soon"), "RFC 3339"),
        (("next", "@daily", "-n", "0"), "0"),
        (("explain", "* * * * FUN"), "FUN"),
    ],
)
def test_what_is_wrong_is_said(offline: Program, words: tuple[str, ...], says: str) -> None:
    done = offline.run(*words, code=2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_version(offline: Program) -> None:
    found = offline.json("version")
    assert set(found) == {"version", "python", "tzdata"}
    assert offline.run("--version").stdout == f"fleetcron {found['version']}\n"


def test_json_may_stand_before_the_command(offline: Program) -> None:
    assert offline.run("--json", "version").stdout == offline.run("version", "--json").stdout


def test_help_loads_neither_drivers_nor_tables(offline: Program) -> None:
    code = (
        "import sys; from fleetcron.cli import main; main(['--help'], standalone_mode=False); "
        "print(sorted({'asyncpg', 'sqlite3', 'rich', 'msgspec', 'asyncio', 'fleetcron.fleet'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("run", "doctor", "import", "next"):
        assert f"  {command} " in done.stdout


def test_help_and_import_are_quick() -> None:
    """The best of five: two cores that also run database servers say little about one try."""

    def best(*words: str) -> float:
        times = []
        for _ in range(5):
            began = time.monotonic()
            subprocess.run([sys.executable, *words], capture_output=True, timeout=50, check=True)
            times.append(time.monotonic() - began)
        return min(times)

    assert best("-m", "fleetcron", "--help") < 0.25
    assert best("-c", "import fleetcron") < 0.15
