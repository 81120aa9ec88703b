"""The command line: `fleetcron [--url URL] [--app module:fleet] COMMAND`.

A command's module is imported when the command is called, so `fleetcron --help` loads click and little else.
Exit codes: 0, 1 for what failed, 2 for what was asked wrongly.
"""

from __future__ import annotations

from fleetcron.cli.program import Program

main = Program()

__all__ = ["main"]
