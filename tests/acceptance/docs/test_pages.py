"""All pages: links resolve, words are those of the glossary, one spelling, commands and names that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

import fleetcron
from fleetcron import BlockingContext, Context, Fleet, Run
from fleetcron.cli import main
from tests.acceptance.docs.pages import DOCS, EXAMPLES, README, ROOT, anchors, blocks, links, name_of, pages, prose
from tests.acceptance.docs.terminal import read

ALL = [pytest.param(page, id=name_of(page)) for page in pages()]
COMMAND_LANGUAGES = ("console", "sh", "ini")
PROGRAM_LANGUAGES = ("python", *COMMAND_LANGUAGES, "sql", "mermaid", "")


def test_there_are_pages() -> None:
    assert len(ALL) > 30


@pytest.mark.parametrize("page", ALL)
def test_links_resolve(page: Path) -> None:
    broken = []
    for target in links(page):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


def test_every_page_can_be_found_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [README]
    while todo:
        page = todo.pop()
        if page in seen or not page.exists() or page.suffix != ".md":
            continue
        seen.add(page)
        todo += [(page.parent / target.partition("#")[0]).resolve() for target in links(page) if "://" not in target]
    assert sorted(name_of(page) for page in set(pages()) - seen) == []


def test_every_file_that_a_source_file_refers_to_exists() -> None:
    missing = []
    for file in (ROOT / "src").rglob("*"):
        if file.suffix in {".py", ".sql"}:
            named = re.findall(r"docs/[\w/-]+\.md", file.read_text("utf-8"))
            missing += [f"{file.relative_to(ROOT)}: {name}" for name in named if not (ROOT / name).exists()]
    assert missing == []


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def glossary() -> set[str]:
    return set(
        re.findall(r"^\| (?:<a [^>]*></a>)?\*\*([\w -]+)\*\*", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    )


def test_the_words_of_the_project_are_in_the_glossary() -> None:
    rule = re.search(r"One word per concept[^:]*: (.*?)\.\n", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    assert rule is not None
    words = {" ".join(word.split()) for word in rule[1].split(",")}
    assert len(words) > 15
    assert sorted(words - glossary()) == []


def test_words_of_the_glossary_have_anchors() -> None:
    assert {word.replace(" ", "-") for word in glossary()} <= anchors(DOCS / "glossary.md")


STRANGE = {  # what others call it: ours
    r"dead[- ]letter queue": "dead letters",
    r"\bcron ?jobs?\b": "a job with a cron schedule",
    r"\bfire times?\b": "tick",
    r"\bexecution times?\b": "due time",
    r"\bfencing tokens?\b": "fence",
    r"\blease tokens?\b": "fence",
    r"\bqueue items?\b": "run",
    r"\bmisfire (records?|threshold)\b": "miss record, grace",
    r"\bskip records?\b": "miss record",
    r"\benqueued? jobs?\b": "submit a run",
    r"\bjob instances?\b": "run",
}
AMERICAN = re.compile(
    r"\b(behavior|color|favor|honor|canceled|canceling|judgment|license[ds]?|center|analyz\w+|summariz\w+|memoiz\w+|"
    r"recogniz\w+|organiz\w+|optimiz\w+|aging|catalog|gray|fulfill)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", ALL)
def test_one_word_for_each_thing(page: Path) -> None:
    text = prose(page)
    assert [
        (found[0], ours) for theirs, ours in STRANGE.items() for found in re.finditer(theirs, text, re.IGNORECASE)
    ] == []


@pytest.mark.parametrize("page", ALL)
def test_one_spelling(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`|\(LICENSE\)|\[LICENSE\]|Apache License 2\.0", "", prose(page))
    assert AMERICAN.findall(text) == []


# ── code ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", ALL)
def test_blocks_say_what_they_are(page: Path) -> None:
    assert [block.where for block in blocks(page) if block.language not in PROGRAM_LANGUAGES] == []


@pytest.mark.parametrize("page", ALL)
def test_python_is_python_with_names_that_exist(page: Path) -> None:
    wrong = []
    for block in blocks(page, "python"):
        tree = ast.parse(block.text if "await" not in block.text or "def " in block.text else indented(block.text))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "fleetcron":
                wrong += [f"{block.where}: {alias.name}" for alias in node.names if alias.name not in fleetcron.__all__]
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                known = OWNERS.get(node.value.id)
                if known is not None and node.attr not in known:
                    wrong.append(f"{block.where}: {node.value.id}.{node.attr}")
    assert wrong == []


OWNERS = {"fleet": {*dir(Fleet)}, "run": {*dir(Run)}, "ctx": {*dir(Context), *dir(BlockingContext), "result"}}
"""What a name means in the pages' code."""


def indented(text: str) -> str:
    return "async def _():\n" + "".join(f"    {line}\n" for line in text.splitlines())


def fleetcron_commands(text: str) -> list[list[str]]:
    """The words after each `fleetcron` in shell text."""
    found = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        for part in re.split(r"[|;&<>]|\$\(", line):
            words = part.split()
            places = [n for n, word in enumerate(words) if re.fullmatch(r"(ExecStart=)?[\w./-]*fleetcron", word)]
            if places and places[0] in (0, 1):
                found.append(words[places[0] + 1 :])
    return found


@pytest.mark.parametrize("page", ALL)
def test_commands_and_their_options_exist(page: Path) -> None:
    wrong = []
    for block in blocks(page, *COMMAND_LANGUAGES):
        text = block.text
        if block.language == "console":
            text = "\n".join(command for command, _ in read(text))
        wrong += [f"{block.where}: {problem}" for words in fleetcron_commands(text) if (problem := unknown(words))]
    for span in re.findall(r"`fleetcron ([^`\n…]+)`", prose(page)):
        if problem := unknown(span.split()):
            wrong.append(problem)
    assert wrong == []


def unknown(words: list[str]) -> str | None:
    """What of these words is no command, or no option of it."""
    command: click.Command = main
    for word in words:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            known = {f for p in (*command.params, *main.params) for f in (*p.opts, *p.secondary_opts)} | {
                "--help",
                "-h",
            }
            if flag not in known:
                return f"{' '.join(words)}: {flag}"
        elif isinstance(command, click.Group) and ":" not in word and word.replace("-", "_").isidentifier():
            with click.Context(command) as ctx:
                inner = command.get_command(ctx, word)
            if inner is None:
                return f"{' '.join(words)}: {word}"
            command = inner
    return None


def test_unknown_commands_and_options_are_seen() -> None:
    assert unknown(["run", "--no-such"])
    assert unknown(["dead", "revive"])
    assert unknown(["--app", "a:b", "submit", "x", "--wait", "--json-payload", "{}"]) is None
    assert fleetcron_commands("FOO=1 fleetcron run --x &\nExecStart=/a/b/fleetcron --app m:f run\n") == [
        ["run", "--x"],
        ["--app", "m:f", "run"],
    ]


def test_examples_are_listed() -> None:
    listed = set(links(EXAMPLES / "README.md"))
    assert {file.name for file in EXAMPLES.glob("*.py")} <= listed
