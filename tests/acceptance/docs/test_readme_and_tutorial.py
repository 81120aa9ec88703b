"""The README and the tutorial, done by a reader in a terminal: every block is executed, what it shows is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.acceptance.docs.pages import DOCS, README, blocks
from tests.acceptance.docs.terminal import Terminal

Open = Callable[[Mapping[str, str]], Terminal]

LANGUAGES = {"python", "console"}
POSTGRES = "postgresql://localhost/fleet"  # the one thing that is another one for each reader


def do(page: Path, desk: Path, terminal: Terminal, replaced: Mapping[str, str]) -> None:
    """Write the files that the page names, run its commands, in order."""
    for block in blocks(page, "python", "console"):
        if block.language == "python":
            if block.file is not None:
                (desk / block.file).write_text(block.text)
        else:
            text = block.text
            for old, new in replaced.items():
                text = text.replace(old, new)
            try:
                terminal.follow(text)
            except AssertionError as error:
                raise AssertionError(f"{page.name}, {block.where}: {error}{logs(desk)}") from None


def logs(desk: Path) -> str:
    return "".join(f"\n--- {log.name}\n{log.read_text()[-2000:]}" for log in sorted(desk.glob("*.log")))


@pytest.mark.parametrize("page", [README, DOCS / "tutorial.md"], ids=["readme", "tutorial"])
def test_no_block_is_left_out(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.where}: a {block.language!r} block would not be executed"
        assert block.language == "console" or block.file, f"{block.where}: nobody can tell in which file this goes"


@pytest.mark.timeout(120)
def test_the_readme_does_what_it_says(desk: Path, open_terminal: Open) -> None:
    do(README, desk, open_terminal({}), {})


@pytest.mark.crash
@pytest.mark.timeout(240)
def test_the_tutorial_does_what_it_says(desk: Path, open_terminal: Open, pg_url: str) -> None:
    do(DOCS / "tutorial.md", desk, open_terminal({}), {POSTGRES: pg_url})
