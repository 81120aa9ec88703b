"""What goes wrong with an elector, and never leaves this package: it makes followers, not failures."""

from __future__ import annotations

from fleetcron.errors import FleetcronError


class ElectorUnreachable(FleetcronError):
    """The elector did not answer, or what it holds for this node is in doubt."""
