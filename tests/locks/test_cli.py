"""`fleetcron lock list`."""

from __future__ import annotations

from pathlib import Path

from fleetcron import Fleet
from tests.acceptance.cli.program import Program


def test_lock_list(store_url: str, tmp_path: Path) -> None:
    program = Program(store_url, tmp_path)
    with Fleet(store_url).blocking as fleet:
        assert program.json("lock", "list") == []
        with fleet.lock("reindex", ttl="30s") as lock:
            (held,) = program.json("lock", "list")
            (same,) = fleet.locks()
            assert (held["name"], held["fence"], held["owner"]) == ("reindex", lock.fence, same.owner)
            assert held["waiters"] == 0
            assert set(held) == {"name", "fence", "owner", "acquired_at", "expires_at", "waiters"}
            shown = program.run("lock", "list").stdout.splitlines()
            assert shown[0].split() == ["lock", "fence", "owner", "acquired", "expires", "waiters"]
            assert shown[1].split()[:3] == ["reindex", str(lock.fence), same.owner]
        assert program.run("lock", "list").stdout == "no locks are held\n"
