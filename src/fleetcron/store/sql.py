"""Statements live in `.sql` files, one each, beside the adapter that runs them; this loads them once.

Files are written for the schema `fleetcron` and can be pasted into psql as they are; another schema replaces that prefix.
"""

from __future__ import annotations

from importlib import resources

DEFAULT_SCHEMA = "fleetcron"


def load(package: str, folder: str = "sql", schema: str = DEFAULT_SCHEMA) -> dict[str, str]:
    """All statements of `package/folder`, by file name without its ending, in name order; leading comment lines are cut off."""
    found = {}
    for entry in sorted(resources.files(package).joinpath(folder).iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".sql"):
            text = entry.read_text(encoding="utf-8")
            if schema != DEFAULT_SCHEMA:
                text = text.replace(f"{DEFAULT_SCHEMA}.", f"{schema}.")
            found[entry.name.removesuffix(".sql")] = _without_header(text)
    return found


def _without_header(text: str) -> str:
    lines = text.splitlines()
    while lines and lines[0].startswith("--"):
        del lines[0]
    return "\n".join(lines).strip()
