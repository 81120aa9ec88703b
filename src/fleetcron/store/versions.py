"""Which schema a database has against which this program needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleetcron.errors import SchemaMismatch


def check_versions(done: Sequence[str], known: Iterable[str]) -> list[str]:
    """The migrations still to apply, in order. Raises SchemaMismatch when the database has some that this program does not know."""
    names = sorted(known)
    if unknown := sorted(set(done) - set(names)):
        raise SchemaMismatch(
            f"the database's fleetcron schema is newer than this program (it has {', '.join(unknown)}): upgrade fleetcron on this machine"
        )
    return [name for name in names if name not in set(done)]
