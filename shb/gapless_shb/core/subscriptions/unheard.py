"""A pubend that a position names and this SHB does not know: it is gone, or was not heard of here yet.

A pubend that is made anew, on a volume that took the place of a lost one, is heard of by one SHB sooner than by another
one. A consumer that moves between them has its position there already (protocol: lost-volumes).
"""

from __future__ import annotations

from gapless.core.network.facts import BrokerId
from gapless.core.stream.ticks import PubendId, Tick, made_before, name_of
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream


def of_its_name(pubend: PubendId, hosting: Hosting) -> list[Constream]:
    """Returns the pubends of the same name that are known here: of every node, and of the volumes that a node had."""
    return [stream for stream in hosting.streams.values() if name_of(stream.pubend) == name_of(pubend)]


def may_be_there(pubend: PubendId, hosting: Hosting, now: int) -> bool:
    """Whether a pubend that is not known here may have taken the place of one that is.

    A node has one volume at a time. If another pubend of that name was made there later, or was heard of after this one
    was made, this one is not there. And this node knows its own pubends. A log of others may end and begin anew at any
    time, and its host describes the former one, too; that may not have arrived yet.
    """
    made, own, nodes = made_before(pubend), hosting.places.broker, dict[BrokerId, Tick]()
    for known in of_its_name(pubend, hosting):
        if not known.meta.timed:
            if known.is_new(now):
                return True
        elif known.meta.broker != own:
            heard = known.heard_upto if known.gone_upto else known.told_upto
            nodes[known.meta.broker] = max(known.meta.created, heard, nodes.get(known.meta.broker, 0))
    return any(heard < made for heard in nodes.values())


def what_followed(pubend: PubendId, hosting: Hosting) -> PubendId:
    """Returns the pubend of that name that is there now, for people."""
    known = of_its_name(pubend, hosting)
    return max(known, key=lambda stream: (not stream.gone_upto, stream.meta.created)).pubend
