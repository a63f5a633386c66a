"""The pubends on a tree of cells: in which directions their knowledge goes, and who is told of them.

What is said, cached and answered is decided by the relay (`gapless_routing.common.relay`), whose directions are the
neighbouring cells; what is known of a pubend is kept by `gapless_routing.common.notices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gapless.core.network.facts import AskPubend, BrokerId, Probe, PubendMeta, Want
from gapless.core.network.frames import Private
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_routing.common.notices import Notices
from gapless_routing.common.progress import ProgressTable
from gapless_routing.common.relay import Outward, Relay, RelayedPubend, in_log
from gapless_routing.common.router_state import CORE, RouterState
from gapless_routing.knowledge.cells import Cell, Cells
from gapless_routing.knowledge.interest import Interests
from gapless_routing.knowledge.peers import Peers

PUBEND: Final = 3
"""The kind of a `Private` that holds a PubendNotice."""
NOTICE_EVERY: Final = 5 * SECOND


@dataclass(slots=True, kw_only=True)
class PubendStream(RelayedPubend):
    """One pubend."""

    cell: Cell
    up: Cell | None
    """The neighbouring cell on the way to the pubend; None: this broker hosts it."""
    heard_directly: bool = False
    """Whether somebody who is no mate spoke of it since it was last repeated to the mates."""


class Streams:
    """All pubends that are known here. To the relay it is the `Directions`."""

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
        self._state = state
        self._cells = cells
        self._peers = peers
        self._interests = interests
        self._progress = progress
        self._streams: dict[PubendId, PubendStream] = {}
        self.notices = Notices(state, self._streams)
        self.relay = Relay(state, peers.links, self, self._streams, cache_bytes)
        table = interests.table
        self.shbs, self.versions, self.decide = table.shbs, table.versions, table.decide
        self.matches, self.wants_nothing = table.matches, table.wants_nothing

    def start(self) -> None:
        """Begins what is to be done again and again."""
        self._state.timers.set(("notices",), self._state.now + NOTICE_EVERY)
        self.relay.start()

    def toward(self, pubend: PubendId) -> Cell | None:
        """Returns the neighbouring cell on the way to a pubend; None: this broker hosts it, or does not know it."""
        stream = self._streams.get(pubend)
        return None if stream is None else stream.up

    # -------------------------------------------------------------------------- the local PHB core

    def opened(self, meta: PubendMeta, members: dict[ShbId, Tick]) -> None:
        """A pubend of this broker, as it is now, with its durable membership."""
        stream = self._stream(meta)
        if stream is not None:
            stream.forget_changed(meta)
            self.notices.opened(stream, meta, members)
            self._progress.hand_over(meta.pubend, stream.enrolled)
            self._announce(stream)

    def enrolled(self, pubend: PubendId, shb: ShbId, at: Tick) -> None:
        """A membership is durable."""
        stream = self._streams.get(pubend)
        if stream is not None and stream.is_here:
            self.notices.enrolled(stream, shb, at)
            self._progress.enrol(pubend, shb)
            self._announce(stream)

    # ----------------------------------------------------------------------------- from other brokers

    def know(self, knowledge: Knowledge) -> None:
        """A pubend of this broker says something, or answers."""
        stream = self._streams.get(knowledge.pubend)
        if stream is not None:
            for part in in_log(knowledge, stream.meta):
                if self.notices.decided(stream, part.hi):
                    self._announce(stream)
                self.relay.say(stream, part)
            self.relay.after(knowledge.pubend)

    def on_knowledge(self, broker: BrokerId, knowledge: Knowledge, slack: int) -> None:
        """Knowledge has come: pushed, or as an answer. `slack`: as of `Relay.take`."""
        stream = self._streams.get(knowledge.pubend)
        if stream is not None:
            for part in in_log(knowledge, stream.meta):
                self.relay.take(stream, part, self.of(broker), slack)
            self.relay.after(knowledge.pubend)

    def pass_on(self, cell: Cell, knowledge: Knowledge, slack: int) -> None:
        """A mate cannot reach a cell, and has this for it."""
        if any(not self._peers.links.is_full(broker) for broker in self._peers.live(cell)):
            self._peers.push(cell, knowledge, slack)

    def on_notice(self, broker: BrokerId, data: bytes) -> None:
        """A pubend, and who is enrolled there. Raises RemoteProtocolError when it makes no sense."""
        notice = self.notices.read(data)
        meta = notice.meta
        stream = None if meta.broker == self._state.broker else self._stream(meta)
        if stream is None or stream.is_here or self.notices.is_old(stream, notice):
            return
        has_changed = self.notices.has_changed(stream, notice)
        if self.notices.has_begun_anew(stream, notice):
            stream.asked.begin_anew()
            stream.forget_changed(meta)
        self.notices.accept(stream, notice)
        stream.heard_directly |= broker not in self._cells.mates
        self.notices.see(stream, self.shb)
        if notice.behind and meta.stable > stream.cache.known_upto:
            self._say_behind(stream, meta.stable)
        if has_changed:
            self._announce(stream, but=broker)

    def _stream(self, meta: PubendMeta) -> PubendStream | None:
        """The stream of a pubend, which may be new here; None if its broker is not on the map."""
        stream = self._streams.get(meta.pubend)
        if stream is not None:
            return stream
        cell = self._cells.of(meta.broker)
        if cell is None:
            return None
        up = self._cells.toward(cell)
        down = [cell for cell in self._cells.neighbours if cell != up and self._cells.has_role_behind(cell, "shb")]
        stream = PubendStream(
            meta=meta,
            is_here=up is None,
            cache=KnowledgeStream(meta.pubend),
            outward={cell: Outward() for cell in down},
            cell=cell,
            up=up,
        )
        self._streams[meta.pubend] = stream
        self._state.owners[meta.pubend] = meta.broker
        self._progress.open(meta.pubend)
        return stream

    # ---------------------------------------------------------------------------------- who is there

    def on_own_interest(self, *, full: bool) -> None:
        """The SHB here said what it wants; when it said all of it, it is told of every pubend."""
        for stream in self._streams.values():
            if full:
                stream.seen = None
            self.notices.see(stream, self.shb)

    def on_link_down(self, broker: BrokerId) -> None:
        """A link to a broker is gone, with the answers that were on their way."""
        for stream in self._streams.values():
            stream.askers.link_down(broker)
            self._begin_anew(stream, broker)

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: it is told of the pubends that come its way. No want has found the way there before."""
        for stream in self._streams.values():
            self._begin_anew(stream, broker)
            self._notify(stream, broker)

    def _begin_anew(self, stream: PubendStream, broker: BrokerId) -> None:
        """If wants go by way of a broker, those that were sent may have been lost, or waited for it."""
        if self._cells.of(broker) in (stream.up, self._cells.own):
            stream.asked.begin_anew()

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

    def repeat_notices(self) -> None:
        """Every five seconds: whatever may have been lost."""
        self._state.timers.set(("notices",), self._state.now + NOTICE_EVERY)
        for stream in self._streams.values():
            # A mate that reaches nobody on the way to the pubend has it from this one; what only a mate said is not
            # said to mates again, or the two would keep each other from learning what is new.
            self._announce(stream, mates=stream.is_here or stream.heard_directly)
            stream.heard_directly = False

    def _announce(self, stream: PubendStream, but: BrokerId | None = None, *, mates: bool = True) -> None:
        """Says what the pubend is, and who is enrolled, to everybody below; a mate may lack a way to hear of it.

        Also where no SHB is: publishers everywhere have to know where the pubend is.
        """
        self.notices.see(stream, self.shb)
        for cell in self._cells.neighbours:
            for broker in self._peers.live(cell):
                self._notify(stream, broker)
        if mates and but not in self._cells.mates:
            for mate in self._peers.live(self._cells.own):
                self._notify(stream, mate)

    def _say_behind(self, stream: PubendStream, stable: Tick) -> None:
        """Nothing comes from above because a link there is full: all below learn that there is something to ask for."""
        for cell in stream.outward:
            for broker in self._peers.live(cell):
                self.say_behind(stream, broker, stable)

    def _notify(self, stream: PubendStream, broker: BrokerId) -> None:
        """Sends a notice to a broker, unless the pubend is on its side."""
        if self._cells.of(broker) != stream.up:
            stable = stream.stable_for(self.of(broker), is_full=self._peers.links.is_full(broker))
            self._peers.links.send(broker, Private(PUBEND, self.notices.notice(stream, stable, behind=False)))

    # ------------------------------------------------------------------------ what the relay asks for

    @property
    def shb(self) -> ShbId:
        """The SHB of this broker, once it has spoken."""
        return self._interests.shb

    def of(self, broker: BrokerId) -> Cell:
        """Returns the cell of a broker."""
        return str(self._cells.of(broker))

    def live(self, cell: Cell) -> list[BrokerId]:
        """Returns the brokers of a cell, to which there is a link."""
        return self._peers.live(cell)

    def push(self, cell: Cell, knowledge: Knowledge, slack: int) -> BrokerId | None:
        """Sends first-time knowledge to one broker of a cell."""
        return self._peers.push(cell, knowledge, slack)

    def toward_home(self, stream: RelayedPubend, want: Want, asker: BrokerId) -> None:
        """Asks the pubend here, or the next broker on the way to its cell."""
        if stream.is_here:
            self._state.effects.append(AskPubend(want, self._state.life))
        else:
            home = self.of(stream.meta.broker)
            self._peers.send_toward(home, want.pubend, want, None if asker == CORE else asker)

    def say_behind(self, stream: RelayedPubend, broker: BrokerId, stable: Tick) -> None:
        """Sends a notice that nothing up to `stable` is going to be pushed, but for what was sent before."""
        notice = Private(PUBEND, self.notices.notice(stream, stable, behind=True))
        self._peers.links.send(broker, notice, in_order=True)
