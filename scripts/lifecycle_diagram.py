"""Write the diagram of a run's life into docs/explanation/lifecycle.md, from the table in fleetcron.decide.lifecycle.

Usage: .venv/bin/python scripts/lifecycle_diagram.py [--check]
--check changes nothing and exits with 1 if the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fleetcron.decide.lifecycle import mermaid

PAGE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "lifecycle.md"
BEGIN = "<!-- lifecycle:begin (written by scripts/lifecycle_diagram.py, do not edit) -->\n"
END = "<!-- lifecycle:end -->\n"


def render(page: str) -> str:
    """`page` with the block between the markers made anew. Raises ValueError if a marker is missing."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n```mermaid\n{mermaid()}```\n\n{END}{after}"


def main() -> int:
    page = PAGE.read_text("utf-8")
    fresh = render(page)
    if page == fresh:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.name} is out of date: run scripts/lifecycle_diagram.py", file=sys.stderr)
        return 1
    PAGE.write_text(fresh, "utf-8")
    print(f"{PAGE.name} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
