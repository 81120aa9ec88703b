"""A terminal in an empty folder, as a reader has it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.docs.pages import ROOT
from tests.acceptance.docs.terminal import Terminal

SHIMS = {
    "fleetcron": 'exec "{python}" -m fleetcron "$@"',
    "python": 'exec "{python}" "$@"',
    # What is installed must be this project, with extras that it has. Nothing is fetched.
    "pip": 'exec "{python}" -m tests.acceptance.docs.installs "$@"',
    # The target must exist, and what it runs is shown instead of being run: make test is what runs this test.
    "make": 'exec "{make}" --dry-run --no-print-directory -C "{root}" "$@"',
}


@pytest.fixture
def reader_env(tmp_path: Path) -> dict[str, str]:
    """The environment of a reader who has installed fleetcron and nothing else."""
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, line in SHIMS.items():
        shim = shims / name
        shim.write_text(f"#!/bin/sh\n{line.format(python=sys.executable, make=_which('make'), root=ROOT)}\n")
        shim.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("FLEETCRON_", "PYTEST_"))}
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    return env | {
        "PATH": f"{shims}{os.pathsep}{env['PATH']}",
        "PYTHONPATH": paths,
        "PYTHONUNBUFFERED": "1",
        "TZ": "UTC",
    }


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """The reader's folder."""
    folder = tmp_path / "desk"
    folder.mkdir()
    return folder


@pytest.fixture
def open_terminal(desk: Path, reader_env: dict[str, str]) -> Iterator[Callable[[Mapping[str, str]], Terminal]]:
    """`open_terminal({…})`: a terminal in the reader's folder, with more environment."""
    with ExitStack() as stack:
        yield lambda more: stack.enter_context(Terminal(desk, reader_env | dict(more)))


def _which(program: str) -> str:
    import shutil

    return shutil.which(program) or f"/no/{program}"
