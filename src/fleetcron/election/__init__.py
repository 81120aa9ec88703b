"""Who may lead. An elector only *nominates*: the nominee must still raise the shard's term in the database, which fences every write of
a leader. So one fence serves every elector, and a split brain in the elector cannot fire a tick twice.
"""

from __future__ import annotations

from fleetcron.election.database import DatabaseElector
from fleetcron.election.factory import make_elector, parse_elector
from fleetcron.election.protocol import Elector

__all__ = ["DatabaseElector", "Elector", "make_elector", "parse_elector"]
