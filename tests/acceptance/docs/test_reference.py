"""The reference says what the program says: options, commands, public names, tables, cron, misfires."""

from __future__ import annotations

import inspect
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, get_args, get_overloads
from zoneinfo import ZoneInfo

import asyncpg
import click
import pytest
from click.testing import CliRunner

import fleetcron
from fleetcron import BlockingContext, Context, Cron, Fleet, Retry, Run, State
from fleetcron.cli import main
from fleetcron.cli.serve import FLEET_OPTIONS
from fleetcron.decide.misfire import REASONS
from fleetcron.durations import parse_duration
from fleetcron.model import OVERLAPS, Overlap
from fleetcron.options import DEFAULT_URL, Options
from fleetcron.sizes import parse_size
from tests.acceptance.docs import cli_page
from tests.acceptance.docs.pages import DOCS, README, blocks, section, table, tables

REFERENCE = DOCS / "reference"
FOR_THE_ENGINE = {"entries", "make_store", "operator", "store", "twin", "use_clock"}
"""Public to the other parts of fleetcron, and of no use to an app."""


def code(cell: str) -> str:
    """`what` out of a cell that begins with it."""
    found = re.match(r"`([^`]*)`", cell)
    assert found is not None, f"{cell!r} does not begin with code"
    return found[1]


def codes(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text))


# ── options ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def option_rows() -> dict[str, dict[str, str]]:
    return {code(row["option"]): row for row in table((REFERENCE / "options.md").read_text("utf-8"))}


def test_every_option_is_there_and_no_other() -> None:
    assert list(option_rows()) == list(Options.__struct_fields__)


def test_options_have_the_defaults_of_the_program() -> None:
    defaults = Options(url=DEFAULT_URL)
    for name, row in option_rows().items():
        actual, shown = getattr(defaults, name), row["default"]
        if actual is None:
            assert shown == "none", name
        elif name == "heartbeat":
            assert shown == "a third of `lease` (`5s`)"
            assert defaults.heartbeat == defaults.lease / 3 == parse_duration("5s")
        else:
            assert actual == parsed(code(shown), type(actual)), name


def parsed(text: str, kind: type) -> Any:
    if kind is timedelta:
        return parse_duration(text)
    if kind is bool:
        return {"true": True, "false": False}[text]
    return parse_size(text, "size") if kind is int else text


def test_options_have_the_names_of_the_environment_and_the_command_line() -> None:
    for name, row in option_rows().items():
        assert code(row["environment"]) == f"FLEETCRON_{name.upper()}"
        assert code(row["`fleetcron run`"]) == f"--{name.replace('_', '-')}"
    assert set(option_rows()) - {"url"} == set(FLEET_OPTIONS)


# ── command line ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_line_page_is_what_the_program_says() -> None:
    written = cli_page.PAGE.read_text("utf-8")
    assert written == cli_page.page(), "run .venv/bin/python -m tests.acceptance.docs.cli_page"


def commands() -> list[str]:
    with click.Context(main) as top:
        return [words for name in main.list_commands(top) for words, _ in cli_page.leaves(name, lookup(name))]


def lookup(name: str) -> click.Command:
    with click.Context(main) as top:
        command = main.get_command(top, name)
    assert command is not None
    return command


@pytest.mark.parametrize("words", commands())
def test_what_help_prints_is_on_the_page(words: str) -> None:
    """Not from the same source as the page: from what a person sees."""
    help_text = CliRunner().invoke(main, [*words.split(), "--help"], terminal_width=200).stdout
    printed = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)(?: / (--[\w-]+))?", help_text, re.MULTILINE))
    flags = {flag for pair in printed for flag in pair if flag} - {"--help", "--url", "--app", "--json"}
    page = cli_page.PAGE.read_text("utf-8")
    found = re.search(
        rf"^### `fleetcron {re.escape(words)}(?: [^`]*)?`\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"there is no section of {words}"
    assert {flag for flag in codes(found[1]) if flag.startswith("--")} == flags


# ── Python ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def python_page() -> str:
    return (REFERENCE / "python.md").read_text("utf-8")


def test_every_public_name_is_on_the_page() -> None:
    assert [name for name in fleetcron.__all__ if not re.search(rf"\b{name}\b", python_page())] == []


@pytest.mark.parametrize("kind", [Fleet, Run, Context, BlockingContext])
def test_every_public_member_is_on_the_page(kind: type) -> None:
    members = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")} - FOR_THE_ENGINE
    members -= {"facts", "stop"} if kind is not Fleet else set()
    assert sorted(name for name in members if not re.search(rf"\b{name}\b", python_page())) == []


def test_the_options_of_a_job_are_on_the_page_and_no_others() -> None:
    rows = table(section(REFERENCE / "python.md", "`@fleet.job`"))
    listed = {name for row in rows for name in codes(row["option"])}
    declared = max((inspect.signature(each).parameters for each in get_overloads(Fleet.job)), key=len)
    assert listed == set(declared) - {"self"}


def test_the_options_of_submit_are_on_the_page_and_no_others() -> None:
    rows = table(section(REFERENCE / "python.md", "Submitting"))
    listed = {name for row in rows for name in codes(row["option"])}
    assert listed == set(inspect.signature(Fleet.submit).parameters) - {"self", "job", "payload"}


def test_the_defaults_of_retry_are_on_the_page() -> None:
    text = re.search(r"`(Retry\(max_attempts=.*?give_up_on=\(\)\))`", python_page())
    assert text is not None
    assert eval(text[1], {"Retry": Retry, "Exception": Exception}) == Retry()  # our own page
    assert text[1].count("=") == len(Retry.__slots__)


def test_states_and_overlaps_are_on_the_page() -> None:
    states = re.search(r"`state` is a `State`: (.*?)\. `state\.final`", python_page(), re.DOTALL)
    assert states is not None
    assert re.findall(r"`(\w+)`", states[1]) == [state.value for state in State]
    assert get_args(Overlap) == OVERLAPS
    for page in (REFERENCE / "python.md", DOCS / "how-to" / "choose-a-misfire-policy.md"):
        assert set(OVERLAPS) <= codes(page.read_text("utf-8"))


# ── SQL ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_tables_are_those_of_the_database(pg_url: str) -> None:
    async with Fleet(pg_url):
        connection = await asyncpg.connect(pg_url)
        try:
            rows = await connection.fetch(
                "SELECT c.table_name, c.column_name FROM information_schema.columns c JOIN information_schema.tables t"
                " USING (table_schema, table_name) WHERE c.table_schema = 'fleetcron' AND t.table_type = 'BASE TABLE'"
            )
        finally:
            await connection.close()
    actual = {f"{row[0]}.{row[1]}" for row in rows}
    listed = {
        f"{code(row['table'])}.{column}"
        for heading in ("Runs", "Jobs and schedules", "The fleet")
        for row in table(section(REFERENCE / "sql.md", heading))
        for column in codes(row["columns"]) - {"open"}
    }
    assert sorted(actual - listed) == [], "not in docs/reference/sql.md"
    assert sorted(listed - actual) == [], "in docs/reference/sql.md, and not in the database"


async def test_the_tables_are_explained() -> None:
    explained = codes((DOCS / "explanation" / "store.md").read_text("utf-8"))
    listed = {
        code(row["table"])
        for heading in ("Runs", "Jobs and schedules", "The fleet")
        for row in table(section(REFERENCE / "sql.md", heading))
    }
    assert listed - explained == set()


async def test_the_statements_run(pg_url: str) -> None:
    fleet = Fleet(pg_url)

    @fleet.job("billing.send_invoice")
    async def send_invoice(order: int) -> None: ...

    async with fleet:
        connection = await asyncpg.connect(pg_url)
        try:
            first, *questions = [block.text for block in blocks(REFERENCE / "sql.md", "sql")]
            run = await fleet.run(await connection.fetchval(first))
            assert (run.job, run.tenant, run.key, run.payload) == (
                "billing.send_invoice",
                "acme",
                "invoice-42",
                {"order": 42},
            )
            assert await connection.fetchval(first) == run.id
            assert questions
            for question in questions:
                await connection.fetch(question)
        finally:
            await connection.close()


# ── cron ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_expressions_mean_what_the_page_says() -> None:
    rows = tables(section(REFERENCE / "cron.md", "Fields"))[1]
    assert len(rows) > 5
    for row in rows:
        assert Cron(code(row["expression"])).explain() == f"{row['in words']} (UTC)"


def test_daylight_saving_is_as_the_page_says() -> None:
    rows = table(section(REFERENCE / "cron.md", "Daylight saving time"))
    assert len(rows) > 5
    for row in rows:
        zone = ZoneInfo(row["zone"])
        begin = datetime.combine(date.fromisoformat(row["date"]), datetime.min.time(), zone).astimezone(UTC)
        ticks = Cron(code(row["expression"]), row["zone"]).upcoming(begin - timedelta(microseconds=1), 50)
        that_day = [tick for tick in ticks if tick.astimezone(zone).date() == date.fromisoformat(row["date"])]
        same_utc_day = [tick for tick in that_day if tick.date() == date.fromisoformat(row["date"])]
        assert " ".join(f"{tick:%H:%M}" for tick in same_utc_day) == row["runs at (UTC)"], row["expression"]


# ── misfires ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_reasons_of_miss_records_are_explained() -> None:
    rows = table(section(DOCS / "explanation" / "misfire.md", "What becomes of the others"))
    listed = {name for row in rows for name in codes(row["`reason`"])}
    source = (fleetcron_file("store/flows.py") + fleetcron_file("store/postgres/sql/settle.sql")).replace("'", '"')
    written = set(re.findall(r'_withdraw\(tx, old, "([\w ]+)"', source)) | set(re.findall(r'reason="([\w ]+)"', source))
    assert listed == set(REASONS.values()) | written | {"expired"}


def fleetcron_file(name: str) -> str:
    from importlib.resources import files

    return files("fleetcron").joinpath(name).read_text("utf-8")


def test_the_readme_names_each_policy() -> None:
    rows = table(section(README, "Misfires"))
    assert {code(row["`misfire`"]) for row in rows} == {"fire_all", "fire_once", "skip"}
    for row in rows:
        policy = code(row["`misfire`"])
        assert f'"{REASONS[policy]}"' in row["the others"]  # type: ignore[index]
