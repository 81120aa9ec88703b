"""`python -m fleetcron`."""

from __future__ import annotations

from fleetcron.cli import main

if __name__ == "__main__":
    main(prog_name="fleetcron")
