"""The router at the seam: which part of it takes which fact, and which message."""

from __future__ import annotations

from typing import Final

from gapless.core.network.facts import BrokerId, Hangup, LinkDown, LinkUp
from gapless.core.network.frames import Address, ProgressRows
from gapless.core.network.seam import Effects, RouterContext
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId
from gapless.errors import RemoteProtocolError
from gapless_routing.common.progress import ProgressTable
from gapless_routing.common.reading import ADDRESSES, AddressKinds
from gapless_routing.common.relay_router import (
    CACHED,
    LINKS,
    MessageHandlers,
    PrivateHandlers,
    RelayRouter,
    TimerHandlers,
    slack_of,
)
from gapless_routing.knowledge.cells import Cells
from gapless_routing.knowledge.check import check_map
from gapless_routing.knowledge.interest import Interests
from gapless_routing.knowledge.options import sizes_of
from gapless_routing.knowledge.peers import HELLO, SIDEWAYS, Peers
from gapless_routing.knowledge.streams import Streams

__all__ = ["CACHED", "LINKS", "KnowledgeRouter"]

_ADDRESSES: Final[AddressKinds] = {**ADDRESSES, Knowledge: ((), (int,), (int, str, str))}
"""A mate is told to which cell knowledge is to be passed on."""


class KnowledgeRouter(RelayRouter):
    """A `Router` for a tree of cells."""

    name = "knowledge"
    networks = "cells"

    def __init__(self) -> None:
        super().__init__()
        self._cells: Cells
        self._peers: Peers
        self._interests: Interests
        self._streams: Streams

    def start(self, now: int, context: RouterContext) -> Effects:
        """Dials the neighbours and the mates. Raises ConfigurationError when the map is no tree of cells."""
        sizes = sizes_of(context.config)
        check_map(context.network, context.broker)
        state = self._begin(now, context)
        self._cells = Cells(context.network, context.broker)
        self._peers = Peers(state, self._cells, sizes.stamp_shbs)
        self._links = self._peers.links
        self._progress = ProgressTable(state, self._links, self._next_hops)
        self._interests = Interests(state, sizes, self._cells, self._peers, self._on_heard, self._read)
        self._streams = Streams(state, self._cells, self._peers, self._interests, self._progress, sizes.cache_bytes)
        self._connect(self._peers, _ADDRESSES)
        for part in (self._peers, self._interests, self._progress, self._streams):
            part.start()
        return self._effects()

    # The network.

    def link_up(self, now: int, up: LinkUp) -> Effects:
        """A link is there: who is at its end is told all that concerns him."""
        self._state.now = now
        if not self._peers.link_up(up.link, up.peer):
            return [Hangup(up.link)]
        self._is_there(up.peer)
        return self._effects()

    def link_down(self, now: int, down: LinkDown) -> Effects:
        """A link is gone. Nothing is sent again: who misses something asks for it, over another one."""
        self._state.now = now
        broker = self._peers.link_down(down.link)
        if broker is not None:
            self._is_gone(broker)
        return self._effects()

    # How it is done.

    def _message_handlers(self) -> MessageHandlers:
        return super()._message_handlers() | {
            ProgressRows: lambda peer, said, _: self._progress.on_rows(said.rows, sideways=peer in self._cells.mates),
        }

    def _private_handlers(self) -> PrivateHandlers:
        return super()._private_handlers() | {HELLO: self._peers.on_hello}

    def _timer_handlers(self) -> TimerHandlers:
        return super()._timer_handlers() | {"hello": self._peers.beat}

    def _on_knowledge(self, peer: BrokerId, knowledge: Knowledge, address: Address) -> None:
        if len(address) < 2:
            super()._on_knowledge(peer, knowledge, address)
        elif address[1] == SIDEWAYS and peer in self._cells.mates and address[2] in self._cells.neighbours:
            self._streams.pass_on(str(address[2]), knowledge, slack_of(address))
        else:
            raise RemoteProtocolError("knowledge that goes sideways comes from a mate")

    def _next_hops(self, pubend: PubendId, *, sideways: bool) -> list[BrokerId]:
        """The live brokers of the cell on the way to a pubend; without any the mates, unless a mate said it."""
        cell = self._streams.toward(pubend)
        live = [] if cell is None else self._peers.live(cell)
        return live or ([] if sideways or cell is None else self._peers.live(self._cells.own))
