"""On a terminal: drawn tables, whole ids, and nothing that acts on it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from tests.acceptance.cli.program import Program


def on_terminal(program: Program, *words: str) -> str:
    """What it writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    env = program.env | {"TERM": "xterm-256color", "COLUMNS": "80"}
    process = subprocess.Popen([sys.executable, "-m", "fleetcron", *words], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    written, give_up_at = b"", time.monotonic() + 30
    try:
        while time.monotonic() < give_up_at:
            if not select.select([ours], [], [], 1)[0]:
                continue
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux's end of a terminal
                break
            if not part:
                break
            written += part
        assert process.wait(10) == 0
    finally:
        os.close(ours)
        process.kill()
        process.wait()
    return written.decode()


def test_tables_are_drawn_and_names_are_whole(tmp_path: Path) -> None:
    program = Program(f"sqlite:///{tmp_path / 'fleet.db'}", tmp_path)
    name = "a-rather-long-name-for-a-job-[bold]-" + "x" * 60
    program.run("job", "add", name, "--shell", "true")
    shown = on_terminal(program, "jobs")
    assert "─" in shown
    assert "\x1b[1m" in shown  # the heading
    letters = "".join(c for c in shown if c.isalnum() or c in "-[]")
    assert "[bold]" in letters
    assert shown.count("x") >= 60
    assert "…" not in shown


def test_json_is_the_same_on_a_terminal(tmp_path: Path) -> None:
    program = Program(f"sqlite:///{tmp_path / 'fleet.db'}", tmp_path)
    program.run("job", "add", "größe", "--shell", "true")
    assert on_terminal(program, "jobs", "--json").replace("\r\n", "\n") == program.run("jobs", "--json").stdout
