"""The pubends on a tree of cells: in which directions their knowledge goes, and who is told of them.

A direction is a neighbouring cell. What is the same for all routers is in `gapless_routing.common.pubend_flow`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gapless.core.network.facts import BrokerId, Probe, PubendMeta, Want
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless_routing.common.progress import ProgressTable
from gapless_routing.common.pubend_flow import NOTICE_EVERY, PUBEND, PubendFlow
from gapless_routing.common.relay import Outward, RelayedPubend
from gapless_routing.common.router_state import CORE, RouterState
from gapless_routing.knowledge.cells import Cell, Cells
from gapless_routing.knowledge.interest import Interests
from gapless_routing.knowledge.peers import Peers

__all__ = ["NOTICE_EVERY", "PUBEND", "PubendStream", "Streams"]


@dataclass(slots=True, kw_only=True)
class PubendStream(RelayedPubend):
    """One pubend."""

    heard_directly: bool = False
    """Whether somebody who is no mate spoke of it since it was last repeated to the mates."""


class Streams(PubendFlow[PubendStream]):
    """All pubends that are known here."""

    def __init__(
        self,
        state: RouterState,
        cells: Cells,
        peers: Peers,
        interests: Interests,
        progress: ProgressTable,
        cache_bytes: int,
    ) -> None:
        """`cache_bytes`: so much memory is for events of all pubends together."""
        super().__init__(state, peers.links, interests, progress, cells.by_broker, cache_bytes)
        self._cells = cells
        self._peers = peers

    def pass_on(self, cell: Cell, knowledge: Knowledge, slack: int) -> None:
        """A mate cannot reach a cell, and has this for it."""
        if any(not self._peers.links.is_full(broker) for broker in self._peers.live(cell)):
            self._peers.push(cell, knowledge, slack)

    # ------------------------------------------------------------------------------------ the shape

    def new(self, meta: PubendMeta) -> PubendStream | None:
        """Returns what is to be known of a pubend; it is said toward all cells with SHBs behind them."""
        cell = self._cells.of(meta.broker)
        if cell is None:
            return None
        up = self._cells.toward(cell)
        down = [cell for cell in self._cells.neighbours if cell != up and self._cells.has_role_behind(cell, "shb")]
        outward = {cell: Outward() for cell in down}
        return PubendStream(meta=meta, is_here=up is None, cache=KnowledgeStream(meta.pubend), outward=outward)

    def is_way(self, broker: BrokerId, pubend: PubendStream) -> bool:
        """Whether wants for a pubend may go by way of a broker: a mate may be the way, too."""
        return self._cells.of(broker) in (self.toward(pubend.meta.pubend), self._cells.own)

    def listeners(self, pubend: PubendStream) -> Iterable[BrokerId]:
        """Returns the live brokers of all neighbouring cells."""
        return [broker for cell in self._cells.neighbours for broker in self._peers.live(cell)]

    def heard_from(self, pubend: PubendStream, broker: BrokerId) -> None:
        """A broker has sent a notice of a pubend, which is believed."""
        pubend.heard_directly |= broker not in self._cells.mates

    def of(self, broker: BrokerId) -> Cell:
        """Returns the cell of a broker."""
        return str(self._cells.of(broker))

    def live(self, direction: Cell) -> list[BrokerId]:
        """Returns the brokers of a cell, to which there is a link."""
        return self._peers.live(direction)

    def push(self, direction: Cell, knowledge: Knowledge, slack: int) -> BrokerId | None:
        """Sends first-time knowledge to one broker of a cell."""
        return self._peers.push(direction, knowledge, slack)

    def ask_on(self, pubend: RelayedPubend, want: Want, asker: BrokerId) -> None:
        """Asks the next broker on the way to a pubend's cell."""
        home = self.of(pubend.meta.broker)
        self._peers.send_toward(home, want.pubend, want, None if asker == CORE else asker)

    def probe(self, probe: Probe, sender: BrokerId | None = None) -> None:
        """Progress is overdue: every SHB is asked for it, by whoever knows a way to it."""
        stream = self._streams.get(probe.pubend)
        if stream is None:
            return
        if self.shb:
            self._state.effects.append(probe)
        hops: dict[BrokerId, None] = {}
        for neighbour in stream.outward:
            for cell in self._cells.with_shbs_behind(neighbour):
                hop = self._peers.next_toward(cell, probe.pubend, sender)
                if hop is not None:
                    hops[hop] = None
        for hop in hops:
            self._peers.links.send(hop, probe)

    # -------------------------------------------------------------------------------------- notices

    def repeat_notices(self) -> None:
        """Every five seconds: whatever may have been lost."""
        self._state.timers.set(("notices",), self._state.now + NOTICE_EVERY)
        for stream in self._streams.values():
            # A mate that reaches nobody on the way to the pubend has it from this one; what only a mate said is not
            # said to mates again, or the two would keep each other from learning what is new.
            self._announce(stream, mates=stream.is_here or stream.heard_directly)
            stream.heard_directly = False

    def _announce(self, stream: PubendStream, but: BrokerId | None = None, *, mates: bool = True) -> None:
        """Says what the pubend is, and who is enrolled, to everybody below; a mate may lack a way to hear of it."""
        super()._announce(stream, but)
        if mates and but not in self._cells.mates:
            for mate in self._peers.live(self._cells.own):
                self._notify(stream, mate)
