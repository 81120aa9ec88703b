"""The how-to pages: their files are written and imported, their commands are done in a terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.acceptance.docs.pages import DOCS, blocks, name_of
from tests.acceptance.docs.terminal import Terminal
from tests.acceptance.docs.test_readme_and_tutorial import POSTGRES, do

Open = Callable[[Mapping[str, str]], Terminal]
PAGES = sorted((DOCS / "how-to").glob("*.md"))
EXECUTED = [page for page in [*PAGES, DOCS / "reference" / "cron.md"] if blocks(page, "console")]


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in EXECUTED])
@pytest.mark.timeout(120)
def test_commands_show_what_the_page_shows(page: Path, desk: Path, open_terminal: Open, pg_url: str) -> None:
    do(page, desk, open_terminal({}), {POSTGRES: pg_url})


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in PAGES])
def test_files_can_be_imported(page: Path, desk: Path, reader_env: dict[str, str]) -> None:
    """Declaring is checked at import: what a page declares is accepted."""
    names = []
    for block in blocks(page, "python"):
        if block.file is not None and "asyncio.run(main())" not in block.text:  # that one is run by its page
            (desk / block.file).write_text(block.text)
            names.append(block.file.removesuffix(".py"))
    if names:
        command = [sys.executable, "-W", "error", "-c", f"import {', '.join(names)}"]
        done = subprocess.run(
            command, cwd=desk, env=reader_env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
