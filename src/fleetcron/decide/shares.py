"""Sharing shards evenly among the schedulers that live: facts in, what to give up and what to stand for out.

Every node computes the same quotas from the same facts, so what the ones give up is what the others lack, and nothing moves once everybody
has its quota. Nodes that look at different moments may disagree for one round; the database decides who leads in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec


class Share(msgspec.Struct, frozen=True):
    """`give`: shards to resign. `want`: how many more to lead. `free`: those that nobody leads, to choose from."""

    give: tuple[int, ...]
    want: int
    free: tuple[int, ...]


def quotas(leads: Mapping[str, int], shards: int) -> dict[str, int]:
    """How many shards each node is to lead, given how many it leads: the numbers differ by one at most, and who has more keeps more."""
    if not leads:
        return {}
    least, more = divmod(shards, len(leads))
    ranked = sorted(leads, key=lambda node: (-leads[node], node))
    return {node: least + (place < more) for place, node in enumerate(ranked)}


def share(
    me: str, nodes: Collection[str], leaders: Mapping[int, str | None], *, overdue: Collection[int] = ()
) -> Share:
    """What `me` has to do. `leaders`: each open shard with its leader or None. `overdue` shards have been free for so long that whoever has
    a right to them seems unable to take them: they are anybody's."""
    leads = {node: sum(leader == node for leader in leaders.values()) for node in nodes}
    mine = sorted(shard for shard, leader in leaders.items() if leader == me)
    free = tuple(sorted(shard for shard, leader in leaders.items() if leader is None))
    quota = quotas(leads, len(leaders)).get(me, 0)
    late = len(set(free) & set(overdue)) if me in leads else 0
    # The highest are given up, so that what runs on the leader of the lowest shard stays where it is.
    return Share(tuple(mine[quota:]), max(quota - len(mine), late), free)
