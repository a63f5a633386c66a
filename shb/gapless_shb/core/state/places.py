"""Where a subscription is at home (protocol: roaming)."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from gapless.core.network.facts import BrokerId
from gapless.core.ports import Roaming
from gapless.core.stream.ticks import ShbId
from gapless.core.wire.messages import Subscribe


def node_of(home: ShbId) -> BrokerId:
    """Returns the node of an SHB."""
    return home.rpartition("@")[0]


TEMPORARY: Final = "~"
"""How the names of subscriptions begin that some job makes for itself alone: each is kept where it is made."""


class Places:
    """The SHBs of a network, as one of them sees it."""

    def __init__(self, roaming: Roaming | None, broker: BrokerId) -> None:
        self.broker = broker
        """The node of this SHB."""
        self._roaming = roaming

    @property
    def roams(self) -> bool:
        """Whether a subscription can be consumed at every SHB: then a client has one of each name in the network."""
        return self._roaming is not None and bool(self._roaming.secret)

    def have(self, node: BrokerId) -> bool:
        """Whether the network has an SHB of this node."""
        return self._roaming is not None and node in self._roaming.shbs

    def has_home(self, name: str) -> bool:
        """Whether a name has one home in the network; if not, it is of the SHB that is asked, and of no other."""
        return self.roams and not name.startswith(TEMPORARY)

    def of_new(self, client_id: str, name: str) -> BrokerId:
        """Returns the node at which a client's subscription of a name is created."""
        return home_of(client_id, self._roaming) if self._roaming is not None and self.has_home(name) else self.broker

    def others(self) -> list[BrokerId]:
        """Returns the nodes of all other SHBs that can be asked from here."""
        return [node for node in self._roaming.shbs if node != self.broker] if self._roaming and self.roams else []

    def of(self, request: Subscribe, client_id: str) -> list[BrokerId]:
        """Returns the nodes that may have a durable subscription which this SHB has not; see `places_of`."""
        assert self._roaming is not None
        if not request.sid and not self.has_home(request.name or ""):
            return [self.broker]
        return places_of(request, client_id, self._roaming, self.broker)


def home_of(client_id: str, roaming: Roaming) -> BrokerId:
    """Returns the node that is the home of a client's new subscriptions.

    Every SHB computes the same. With one SHB more, few names have another home (rendezvous hashing).
    """

    def weight(node: BrokerId) -> tuple[bytes, BrokerId]:
        return blake2b(f"{len(node)} {node} {client_id}".encode(), digest_size=8).digest(), node

    return max(roaming.shbs, key=weight)


def places_of(request: Subscribe, client_id: str, roaming: Roaming, broker: BrokerId) -> list[BrokerId]:
    """Returns the nodes that may have a durable subscription that `broker` has not, in the order of being asked.

    The last one creates it, if it does not exist. The home that a token names comes first: the subscription was created
    there, and a network that has grown since may give the name another home.
    """
    if request.sid:
        return [node_of(request.home)]
    places = [home_of(client_id, roaming)]
    token_home = node_of(request.token_home)
    if token_home in roaming.shbs and token_home not in {broker, *places}:
        places.insert(0, token_home)
    return places
