"""The pages of the documentation, taken apart: fenced blocks, headings, links, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
EXAMPLES = ROOT / "examples"

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (?P<text>.+)$", re.MULTILINE)
_FILE = re.compile(r"# (?P<name>[\w/]+\.py)\n")
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block: its language, its text, where it begins, the file that it says it is (`# app.py` on top), and the heading above it."""

    language: str
    text: str
    line: int
    file: str | None
    heading: str

    @property
    def where(self) -> str:
        return f"line {self.line}"


def pages() -> list[Path]:
    """Every page that we write."""
    return [README, *sorted(DOCS.rglob("*.md")), *sorted(EXAMPLES.rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page, in order; of these languages only, if some are named."""
    text = page.read_text("utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        file = _FILE.match(fence["text"])
        line = text.count("\n", 0, fence.start()) + 1
        above = [heading["text"] for heading in _HEADING.finditer(_FENCE.sub("", text[: fence.start()]))]
        name = file["name"] if file else None
        found.append(Block(fence["info"].strip(), fence["text"], line, name, above[-1] if above else ""))
    return [block for block in found if not languages or block.language in languages]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> Iterator[str]:
    """Where a page points to."""
    for link in _LINK.finditer(prose(page)):
        yield link["target"]


def anchors(page: Path) -> set[str]:
    """What can stand after `page#`: the headings, as GitHub spells them, and explicit ids."""
    text = prose(page)
    found: set[str] = set(re.findall(r'<a id="([\w-]+)"></a>', text))
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        number, unique = 0, slug
        while unique in found:
            number += 1
            unique = f"{slug}-{number}"
        found.add(unique)
    return found


def section(page: Path, heading: str) -> str:
    """The text under a heading, up to the next one of its level or above."""
    text = page.read_text("utf-8")
    found = re.search(rf"^(#+) {re.escape(heading)}\n", text, re.MULTILINE)
    assert found is not None, f"{name_of(page)} has no section {heading!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def tables(text: str) -> list[list[dict[str, str]]]:
    """The tables in a text, each as rows by column name. Cells keep their marks."""
    found = []
    for lines in re.findall(r"(?:^\|.*\n)+", _FENCE.sub("", text + "\n"), re.MULTILINE):
        head, _, *rest = [_cells(line) for line in lines.splitlines()]
        found.append([dict(zip(head, row, strict=True)) for row in rest])
    return found


def table(text: str) -> list[dict[str, str]]:
    """The first table in a text."""
    return tables(text)[0]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
