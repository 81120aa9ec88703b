"""The README and the tutorial, done by a reader in a terminal: every block is executed, what it shows is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.acceptance.docs.pages import DOCS, README, Block, blocks
from tests.acceptance.docs.terminal import Terminal
from tests.support.processes import side_by_side

Open = Callable[[Mapping[str, str]], Terminal]

LANGUAGES = {"python", "console"}
POSTGRES = "postgresql://localhost/fleet"  # the one thing that is another one for each reader


TUTORIAL = DOCS / "tutorial.md"
NODE = """
$ export FLEETCRON_APP=shop:fleet
$ fleetcron run > {name}.log 2>&1 & {name}=$!
$ until grep --quiet 'is ready' {name}.log; do sleep 0.05; done
"""
READERS = {
    "": "",
    "A schedule": NODE.format(name="node4"),
    "The same on PostgreSQL": NODE.format(name="node6") + "$ export FLEETCRON_LEASE=3s\n",
}
"""From which heading on each reader reads, until where the next one does; and what those before have left in the shell."""


def do(
    page: Path, desk: Path, terminal: Terminal, replaced: Mapping[str, str], *, since: str = "", until: str = ""
) -> None:
    """Write the files that the page names, run its commands, in order; from the heading `since` on, and before `until`."""
    found = blocks(page, "python", "console")
    headings = [block.heading for block in found]
    first, last = headings.index(since) if since else 0, headings.index(until) if until else len(found)
    for block in found[first:last]:
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


def before(page: Path, heading: str) -> Block:
    """The last app above a heading."""
    found = blocks(page, "python", "console")
    end = [block.heading for block in found].index(heading)
    return next(block for block in reversed(found[:end]) if block.file is not None)


def logs(desk: Path) -> str:
    return "".join(f"\n--- {log.name}\n{log.read_text()[-2000:]}" for log in sorted(desk.glob("*.log")))


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=["readme", "tutorial"])
def test_no_block_is_left_out(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.where}: a {block.language!r} block would not be executed"
        assert block.language == "console" or block.file, f"{block.where}: nobody can tell in which file this goes"


@pytest.mark.timeout(120)
def test_the_readme_does_what_it_says(desk: Path, open_terminal: Open) -> None:
    do(README, desk, open_terminal({}), {})


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(240)
def test_the_tutorial_does_what_it_says_from_first_to_last(desk: Path, open_terminal: Open, pg_url: str) -> None:
    do(TUTORIAL, desk, open_terminal({}), {POSTGRES: pg_url})


@pytest.mark.crash
@pytest.mark.timeout(240)
def test_the_tutorial_does_what_it_says(desk: Path, open_terminal: Open, pg_url: str) -> None:
    """Three readers at once, at a desk each: the tutorial waits much. Those of the later parts, which need none of the runs before them, begin
    with what is left there: the last app, a node that runs it, and the variables."""
    parts = list(READERS)
    terminals = [open_terminal({}) for _ in parts]

    def read(part: int) -> None:
        (place := desk / str(part)).mkdir()
        since, until = parts[part], parts[part + 1] if part + 1 < len(parts) else ""
        if since:
            (place / "shop.py").write_text(before(TUTORIAL, since).text)
        terminals[part].follow(f"$ cd {place}\n{READERS[since].lstrip()}")
        do(TUTORIAL, place, terminals[part], {POSTGRES: pg_url}, since=since, until=until)

    side_by_side(first=lambda: read(0), second=lambda: read(1), third=lambda: read(2))
