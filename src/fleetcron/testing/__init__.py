"""Testing what runs when, without waiting for it: a fleet on virtual time."""

from __future__ import annotations

from fleetcron.testing.fleet import VirtualFleet

__all__ = ["VirtualFleet"]
