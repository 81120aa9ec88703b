"""Stands in for pip in the pages' console blocks: `pip install WHAT` must name this project, and extras that it has. Fetches nothing."""

from __future__ import annotations

import re
import sys
import tomllib

from tests.acceptance.docs.pages import ROOT


def main(words: list[str]) -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if words[:1] != ["install"] or len(words) < 2:
        print(f"pip {' '.join(words)}: the pages should only install", file=sys.stderr)
        return 2
    for word in words[1:]:
        found = re.fullmatch(r"(?P<what>[\w.-]+)(?:\[(?P<extras>[\w,-]+)\])?", word)
        if found is None or found["what"] not in {project["name"], "."}:
            print(f"{word!r} is not this project", file=sys.stderr)
            return 1
        if unknown := set((found["extras"] or "").split(",")) - {"", *project["optional-dependencies"]}:
            print(f"{word!r}: there is no extra {', '.join(sorted(unknown))}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
