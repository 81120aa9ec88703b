"""Writes docs/reference/cli.md from the program itself.

Usage: .venv/bin/python -m tests.acceptance.docs.cli_page [--check]
--check changes nothing and exits with 1 if the page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from fleetcron.cli import main
from fleetcron.cli.program import COMMANDS
from tests.acceptance.docs.pages import DOCS

PAGE = DOCS / "reference" / "cli.md"
COMMON = ("url", "app", "json")
INTRODUCTION = """\
# Command line

<!-- Written by tests/acceptance/docs/cli_page.py from the program's own help; do not edit. -->

`fleetcron [--url URL] [--app MODULE:FLEET] [--json] COMMAND …`. Every command takes these three, before or after its name:

{common}

Output is a table on a terminal, aligned text elsewhere, and one JSON document with `--json`, whose field names are those of Python. Times
are RFC 3339 with a zone (`2026-03-29T01:00:00Z`), durations are `250ms`, `90s`, `5m`, `1h30m`, `2d`. Exit codes: 0; 1 for what failed; 2 for
what was asked wrongly. Commands that only look or steer do not register the app's jobs; `submit`, `trigger` and `run` do.
"""


def page() -> str:
    """The page as it should be."""
    with click.Context(main, info_name="fleetcron") as top:
        common = [param for param in main.params if param.name in COMMON]
        text = INTRODUCTION.format(common=options(common))
        for section, commands in COMMANDS.items():
            text += f"\n## {section}\n"
            for name in commands:
                command = main.get_command(top, name)
                assert command is not None
                for words, each in leaves(name, command):
                    text += described(words, each)
    return text


def leaves(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command, or the commands of a group."""
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            for name in command.list_commands(ctx):
                inner = command.get_command(ctx, name)
                assert inner is not None
                yield from leaves(f"{words} {name}", inner)
    else:
        yield words, command


def described(words: str, command: click.Command) -> str:
    """One command: what it takes, what it does."""
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    own = [param for param in command.params if isinstance(param, click.Option) and param.name not in COMMON]
    with click.Context(command) as ctx:
        usage = " ".join(argument.make_metavar(ctx) for argument in arguments)
    text = f"\n### `fleetcron {f'{words} {usage}'.strip()}`\n\n{sentences(command.help or '')}\n"
    table = options(own)
    return f"{text}\n{table}\n" if table else text


def options(params: list[click.Parameter] | list[click.Option]) -> str:
    """A table of options; those that are hidden are left out."""
    rows = []
    for param in params:
        if isinstance(param, click.Option) and not param.hidden:
            flags = ", ".join(f"`{flag}`" for flag in (*param.opts, *param.secondary_opts))
            rows.append(f"| {flags} | {cell(value(param))} | {cell(param.help or '')}{default(param)} |")
    return "\n".join(["| option | value | |", "|---|---|---|", *rows]) if rows else ""


def value(param: click.Option) -> str:
    """What an option takes, in a word."""
    if param.is_flag:
        return ""
    if param.metavar:
        return param.metavar
    if isinstance(param.type, click.Choice):
        return "|".join(map(str, param.type.choices))
    if isinstance(param.type, click.IntRange):
        return f"{param.type.min} to {param.type.max}"
    return {"text": "text", "integer": "number"}.get(param.type.name, param.type.name)


def default(param: click.Option) -> str:
    return f" Default: {param.default}." if param.show_default and param.default is not None else ""


def sentences(text: str) -> str:
    return " ".join(text.split())


def cell(text: str) -> str:
    return sentences(text).replace("|", "\\|")


def write(words: list[str]) -> int:
    fresh = page()
    if PAGE.exists() and PAGE.read_text("utf-8") == fresh:
        return 0
    if "--check" in words:
        print(f"{PAGE.name} is out of date: run python -m tests.acceptance.docs.cli_page", file=sys.stderr)
        return 1
    PAGE.write_text(fresh, "utf-8")
    print(f"{PAGE.name} is written")
    return 0


if __name__ == "__main__":
    sys.exit(write(sys.argv[1:]))
