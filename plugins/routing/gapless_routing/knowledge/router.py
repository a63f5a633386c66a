"""The router at the seam: which part of it takes which fact, and which message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gapless.core.network.facts import (
    BrokerId,
    Enrolled,
    Hangup,
    Interest,
    Know,
    LinkDown,
    LinkUp,
    Opened,
    Probe,
)
from gapless.core.network.frames import Address, Private, ProgressRows
from gapless.core.network.seam import Effects, RouterContext
from gapless.core.network.timer_queue import MILLISECOND
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId
from gapless.errors import RemoteProtocolError
from gapless_routing.common.progress import ProgressTable
from gapless_routing.common.reading import ADDRESSES, AddressKinds
from gapless_routing.common.relay import SILENCE_AFTER
from gapless_routing.common.relay_router import CACHED, LINKS, MessageHandlers, RelayRouter, TimerHandlers
from gapless_routing.knowledge.cells import Cells
from gapless_routing.knowledge.check import check_map
from gapless_routing.knowledge.interest import CENSUS, Interests
from gapless_routing.knowledge.options import sizes_of
from gapless_routing.knowledge.peers import HELLO, SIDEWAYS, Peers
from gapless_routing.knowledge.streams import PUBEND, Streams

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
        self._on_private: dict[int, Callable[[BrokerId, bytes], None]]

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
        self._notices, self._relay = self._streams.notices, self._streams.relay
        self._on_private = {
            HELLO: self._peers.on_hello,
            CENSUS: self._interests.on_census,
            PUBEND: self._on_notice,
        }
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
        self._streams.on_link_up(up.peer)
        self._interests.on_link_up(up.peer)
        cell = self._cells.of(up.peer)
        self._progress.on_link_up(up.peer, lambda pubend: self._streams.toward(pubend) == cell)
        return self._effects()

    def link_down(self, now: int, down: LinkDown) -> Effects:
        """A link is gone. Nothing is sent again: who misses something asks for it, over another one."""
        self._state.now = now
        broker = self._peers.link_down(down.link)
        if broker is not None:
            self._interests.sayings.link_down(broker)
            self._streams.on_link_down(broker)
        return self._effects()

    # The local PHB core.

    def pubend(self, now: int, opened: Opened) -> Effects:
        """A pubend of this node, as it is now."""
        self._state.now = now
        self._streams.opened(opened.meta, dict(opened.members))
        return self._effects()

    def know(self, now: int, said: Know) -> Effects:
        """Facts of a pubend of this node."""
        self._state.now = now
        self._streams.know(said.knowledge)
        return self._effects()

    def probe(self, now: int, probe: Probe) -> Effects:
        """Progress is overdue."""
        self._state.now = now
        self._streams.probe(probe)
        return self._effects()

    def enrolled(self, now: int, enrolled: Enrolled) -> Effects:
        """A membership is durable."""
        self._state.now = now
        self._streams.enrolled(enrolled.pubend, enrolled.shb, enrolled.at)
        return self._effects()

    # The local SHB core.

    def interest(self, now: int, interest: Interest) -> Effects:
        """The SHB's interest."""
        self._state.now = now
        self._interests.on_own(interest)
        self._streams.on_own_interest(full=interest.full)
        return self._effects()

    # How it is done.

    def _message_handlers(self) -> MessageHandlers:
        return super()._message_handlers() | {
            Knowledge: self._on_knowledge,
            Probe: lambda peer, probe, _: self._streams.probe(probe, peer),
            ProgressRows: lambda peer, said, _: self._progress.on_rows(said.rows, sideways=peer in self._cells.mates),
            Private: self._on_private_message,
        }

    def _timer_handlers(self) -> TimerHandlers:
        return super()._timer_handlers() | {"hello": self._peers.beat, "notices": self._streams.repeat_notices}

    def _on_knowledge(self, peer: BrokerId, knowledge: Knowledge, address: Address) -> None:
        slack = min(int(address[0]) * MILLISECOND, SILENCE_AFTER) if address else 0
        if len(address) < 2:
            self._streams.on_knowledge(peer, knowledge, slack)
        elif address[1] == SIDEWAYS and peer in self._cells.mates and address[2] in self._cells.neighbours:
            self._streams.pass_on(str(address[2]), knowledge, slack)
        else:
            raise RemoteProtocolError("knowledge that goes sideways comes from a mate")

    def _on_private_message(self, peer: BrokerId, said: Private, _: Address) -> None:
        handle = self._on_private.get(said.kind)
        if handle is None:
            raise RemoteProtocolError("a message of a kind that this router does not know")
        handle(peer, said.data)

    def _on_notice(self, peer: BrokerId, data: bytes) -> None:
        self._streams.on_notice(peer, data)
        self._placing.on_lives()

    def _next_hops(self, pubend: PubendId, *, sideways: bool) -> list[BrokerId]:
        """The live brokers of the cell on the way to a pubend; without any the mates, unless a mate said it."""
        cell = self._streams.toward(pubend)
        live = [] if cell is None else self._peers.live(cell)
        return live or ([] if sideways or cell is None else self._peers.live(self._cells.own))
