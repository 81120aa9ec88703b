"""Each example runs, for a few seconds, as its README says."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fleetcron import Fleet
from fleetcron.embedded_postgres import free_port
from tests.acceptance.docs.pages import EXAMPLES, ROOT
from tests.support.postgres import run_apart
from tests.support.processes import wait_until

NAMES = {"crunch", "nightly_report", "orders", "web_app"}


class Bench:
    """The examples' folder on a database of the test's own; what is written goes into the test's folder."""

    def __init__(self, url: str, folder: Path, env: dict[str, str]) -> None:
        self.url, self.folder = url, folder
        # The folder of the examples stands on the import path instead of being the current one: they write where they are.
        self.env = env | {
            "FLEETCRON_URL": url,
            "PYTHONPATH": f"{EXAMPLES}:{env['PYTHONPATH']}",
            "FLEETCRON_LEASE": "3s",
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-W", "error", *words]

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            self.command(*words), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fleetcron(self, *words: str, code: int = 0) -> str:
        return self.run("-m", "fleetcron", *words, code=code)

    @contextlib.contextmanager
    def started(self, *words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
        """A program in the background; ended, with its log shown if the test fails."""
        process = subprocess.Popen(
            self.command(*words),
            cwd=self.folder,
            env=self.env | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            while line and "ready" not in line and "http" not in line:
                line = process.stdout.readline()
            assert line, f"{words} ended with {process.wait(10)}"
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def node(self, app: str, **more: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
        return self.started("-u", "-m", "fleetcron", "--app", f"{app}:fleet", "run", **more)


@pytest.fixture
def bench(tmp_path: Path, desk: Path, reader_env: dict[str, str]) -> Bench:
    return Bench(f"sqlite:///{tmp_path / 'fleet.db'}", desk, reader_env)


def test_there_is_a_test_for_each() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == NAMES


def test_nightly_report(bench: Bench) -> None:
    with bench.node("nightly_report", REPORT_CRON="* * * * * *"), Fleet(bench.url).blocking as fleet:
        wait_until(lambda: len(fleet.runs(state="succeeded", limit=10)) >= 2, what="two nights")
        runs = fleet.runs(state="succeeded", limit=10)
    files = {run.result["file"] for run in runs}
    assert len(files) == len(runs)
    for run in runs:
        night, total = (bench.folder / run.result["file"]).read_text().splitlines()[1].split(",")
        assert night == run.nominal_at.isoformat()
        assert int(total) == len(night) + 6
    assert not list(bench.folder.rglob("*.draft"))


def test_web_app(bench: Bench) -> None:
    port = free_port()
    with bench.node("web_app"), bench.started("-u", str(EXAMPLES / "web_app.py"), PORT=str(port)):

        def ask(method: str, path: str) -> tuple[int, Any]:
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        status, ordered = ask("POST", "/reports?rows=4")
        assert (status, ordered["new"]) == (202, True)
        assert ask("POST", "/reports?rows=4")[1]["run"] == ordered["run"]
        wait_until(lambda: ask("GET", ordered["at"])[1]["state"] == "succeeded", what="the report")
        assert ask("GET", ordered["at"])[1] == {"state": "succeeded", "result": 4, "error": None, "done": 4, "of": 4}
        assert ask("GET", "/runs/999")[0] == 404
        assert ask("POST", "/reports?rows=many")[0] == 400
        assert ask("GET", "/")[0] == 404


@pytest.mark.crash
def test_orders(pg_url: str, bench: Bench) -> None:
    bench.env["FLEETCRON_URL"] = pg_url
    said = bench.run(str(EXAMPLES / "orders.py"), "20")
    assert said.splitlines() == ["one order was refused", "20 orders, 20 runs"]
    with bench.node("orders") as node, Fleet(pg_url).blocking as fleet:
        wait_until(lambda: fleet.runs(state="succeeded"), what="the first booking")
        node.kill()
        with bench.node("orders"):
            wait_until(lambda: len(fleet.runs(state="succeeded", limit=100)) == 20, what="all bookings")

    async def ledger() -> tuple[int, int]:
        connection = await asyncpg.connect(pg_url)
        try:
            found = await connection.fetchrow("SELECT count(*), count(DISTINCT order_id) FROM ledger")
        finally:
            await connection.close()
        assert found is not None
        return found[0], found[1]

    assert run_apart(ledger()) == (20, 20)


def test_crunch(bench: Bench) -> None:
    with bench.node("crunch"):
        submit = ("--app", "crunch:fleet", "submit")
        said = bench.fleetcron(*submit, "crunch.primes", "--json-payload", '{"below": 250000}', "--wait", "--json")
        assert json.loads(said)["result"] == 22_044
        stuck = json.loads(bench.fleetcron(*submit, "crunch.stuck", "--wait", "--json", code=1))
        assert (stuck["state"], stuck["error"]) == ("failed", "HandlerTimeout: timed out after 2s")


def test_the_house_rules_hold_for_examples() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", str(EXAMPLES)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
