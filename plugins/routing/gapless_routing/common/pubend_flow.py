"""The pubends of a network as one router knows them: who is told of them, and in which directions the relay goes.

What is known of a pubend is kept by `notices`; what is said, cached and answered is decided by the relay. Here is what
follows for both from the facts of this node, and from what other brokers send. Where things go is in the methods under
"the shape": by default each direction is a neighbouring broker, and there is one way to each node (`toward`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Generic, TypeVar

from gapless.core.network.facts import AskPubend, BrokerId, Probe, PubendMeta, Want
from gapless.core.network.frames import Private
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.stamps import Stamp
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_routing.common.interest import Decision
from gapless_routing.common.interest_flow import InterestFlow
from gapless_routing.common.link_table import LinkTable
from gapless_routing.common.notices import Notices
from gapless_routing.common.progress import ProgressTable
from gapless_routing.common.relay import ALL_FULL, Outward, Relay, RelayedPubend, in_log
from gapless_routing.common.router_state import RouterState

PUBEND: Final = 3
"""The kind of a `Private` that holds a PubendNotice."""
NOTICE_EVERY: Final = 5 * SECOND
PubendT = TypeVar("PubendT", bound=RelayedPubend)


class PubendFlow(Generic[PubendT]):
    """All pubends that are known here. To the relay it is the `Directions`."""

    def __init__(
        self,
        state: RouterState,
        links: LinkTable,
        interests: InterestFlow,
        progress: ProgressTable,
        toward: Mapping[BrokerId, str],
        cache_bytes: int,
    ) -> None:
        """`toward`: the direction of each other node. `cache_bytes`: so much memory is for events of all pubends."""
        self._state = state
        self._links = links
        self._interests = interests
        self._progress = progress
        self._toward = toward
        self._streams: dict[PubendId, PubendT] = {}
        self.notices = Notices(state, self._streams)
        self.relay = Relay(state, links, self, self._streams, cache_bytes)
        table = interests.table
        self.shbs: Callable[[str], Collection[ShbId]] = table.shbs
        self.versions: Callable[[Iterable[str]], Mapping[ShbId, int]] = table.versions
        self.matches: Callable[[str, PubendId, EventBatch], int] = table.matches
        self.wants_nothing: Callable[[str], bool] = table.wants_nothing
        self.widened: Callable[[str], int] = table.widened

    def start(self) -> None:
        """Begins what is to be done again and again."""
        self._state.timers.set(("notices",), self._state.now + NOTICE_EVERY)
        self.relay.start()

    def toward(self, pubend: PubendId) -> str | None:
        """Returns the direction of a pubend; None: this broker hosts it, or does not know it."""
        owner = self._state.owners.get(pubend)
        return None if owner is None else self._toward.get(owner)

    # ------------------------------------------------------------------------------------ the shape

    def new(self, meta: PubendMeta) -> PubendT | None:
        """Returns what is to be known of a pubend that is new here; None if its broker is not on the map."""
        up = self._toward.get(meta.broker)
        if up is None and meta.broker != self._state.broker:
            return None
        outward = {direction: Outward() for direction in dict.fromkeys(self._toward.values()) if direction != up}
        cache = KnowledgeStream(meta.pubend)
        return RelayedPubend(meta=meta, is_here=up is None, cache=cache, outward=outward)  # type: ignore[return-value]

    def is_way(self, broker: BrokerId, pubend: PubendT) -> bool:
        """Whether wants for a pubend may go by way of a broker."""
        return broker == self.toward(pubend.meta.pubend)

    def is_told(self, broker: BrokerId, pubend: PubendT) -> bool:
        """Whether notices of a pubend go to a broker: to everybody who is not on its side."""
        return self.of(broker) != self.toward(pubend.meta.pubend)

    def listeners(self, pubend: PubendT) -> Iterable[BrokerId]:
        """Returns the live brokers to which notices of a pubend go: also where no SHB is, for publishers everywhere."""
        return [broker for broker in self._links if self.is_told(broker, pubend)]

    def heard_from(self, pubend: PubendT, broker: BrokerId) -> None:
        """A broker has sent a notice of a pubend, which is believed."""

    def dropped(self, shb: ShbId) -> None:
        """An SHB is no member of a pubend of another broker any more."""

    def of(self, broker: BrokerId) -> str:
        """Returns in which direction a broker is."""
        return broker

    def live(self, direction: str) -> Collection[BrokerId]:
        """Returns the brokers next in a direction, to which there is a link."""
        return [direction] if direction in self._links else []

    def push(self, direction: str, knowledge: Knowledge, slack: int) -> BrokerId | None:
        """Sends first-time knowledge in a direction."""
        if direction not in self._links:
            return None
        if self._links.is_full(direction):
            return ALL_FULL
        self._links.send(direction, knowledge, (slack // MILLISECOND,) if slack else ())
        return direction

    def decide(self, direction: str, stamp: Stamp, pubend: RelayedPubend) -> Decision:
        """Returns what to do with knowledge of a pubend under a stamp in a direction."""
        return self._interests.table.decide(direction, stamp, pubend.enrolled)

    def make_room(self, pubend: RelayedPubend, upto: Tick) -> None:
        """Forgets what is cached up to a tick: whoever needs it asks somebody else."""
        pubend.cache.forget(pubend.cache.base, upto)

    def ask_on(self, pubend: RelayedPubend, want: Want, asker: BrokerId) -> None:
        """Asks the next broker on the way to a pubend, if that is not the one who asks."""
        up = self.toward(want.pubend)
        if up is not None and up != asker:
            self._links.send(up, want)

    def probe(self, probe: Probe, sender: BrokerId | None = None) -> None:
        """Progress is overdue: every SHB is asked for it, by whoever knows a way to it."""
        stream = self._streams.get(probe.pubend)
        if stream is not None and self.shb:
            self._state.effects.append(probe)
        for direction in stream.outward if stream is not None else ():
            if direction != sender:
                self._links.send(direction, probe)

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

    def know(self, knowledge: Knowledge) -> None:
        """A pubend of this broker says something, or answers."""
        stream = self._streams.get(knowledge.pubend)
        if stream is not None:
            for part in in_log(knowledge, stream.meta):
                if self.notices.decided(stream, part.hi):
                    self._announce(stream)
                self.relay.say(stream, part)
            self.relay.after(knowledge.pubend)

    # ----------------------------------------------------------------------------- from other brokers

    def on_knowledge(self, broker: BrokerId, knowledge: Knowledge, slack: int) -> None:
        """Knowledge has come: pushed, or as an answer. `slack`: as of `Relay.take`."""
        stream = self._streams.get(knowledge.pubend)
        if stream is not None:
            for part in in_log(knowledge, stream.meta):
                self.relay.take(stream, part, self.of(broker), slack)
            self.relay.after(knowledge.pubend)

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
        for shb in self.notices.accept(stream, notice):
            self.dropped(shb)
        self.heard_from(stream, broker)
        self.notices.see(stream, self.shb)
        if notice.behind and meta.stable > stream.cache.known_upto:
            self._say_behind(stream, meta.stable)
        if has_changed:
            self._announce(stream, but=broker)

    def _stream(self, meta: PubendMeta) -> PubendT | None:
        """The stream of a pubend, which may be new here; None if its broker is not on the map."""
        stream = self._streams.get(meta.pubend)
        if stream is None:
            stream = self.new(meta)
            if stream is not None:
                self._streams[meta.pubend] = stream
                self._state.owners[meta.pubend] = meta.broker
                self._progress.open(meta.pubend)
        return stream

    def forget(self, pubend: PubendId) -> None:
        """A pubend is gone for ever, and nothing of it waits to be said: nothing is known of it any more."""
        del self._streams[pubend], self._state.owners[pubend]
        self._progress.close(pubend)

    # ---------------------------------------------------------------------------------- who is there

    def on_own_interest(self, *, full: bool) -> None:
        """The SHB here said what it wants; when it said all of it, it is told of every pubend."""
        for stream in self._streams.values():
            if full:
                stream.seen = None
            self.notices.see(stream, self.shb)

    def on_link_down(self, broker: BrokerId) -> None:
        """A link to a broker is gone, with the answers that were on their way."""
        self.relay.on_link_down(broker)
        for stream in self._streams.values():
            stream.askers.link_down(broker)
            self._begin_anew(stream, broker)

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: it is told of the pubends that come its way. No want has found the way there before."""
        for stream in self._streams.values():
            self._begin_anew(stream, broker)
            self._notify(stream, broker)

    def _begin_anew(self, stream: PubendT, broker: BrokerId) -> None:
        """If wants go by way of a broker, those that were sent may have been lost, or waited for it."""
        if self.is_way(broker, stream):
            stream.asked.begin_anew()

    def repeat_notices(self) -> None:
        """Every five seconds: whatever may have been lost."""
        self._state.timers.set(("notices",), self._state.now + NOTICE_EVERY)
        for stream in self._streams.values():
            self._announce(stream)

    def _announce(self, stream: PubendT, but: BrokerId | None = None) -> None:
        """Says what the pubend is, and who is enrolled, to everybody but who has just said it."""
        self.notices.see(stream, self.shb)
        for broker in self.listeners(stream):
            if broker != but:
                self._notify(stream, broker)

    def _say_behind(self, stream: PubendT, stable: Tick) -> None:
        """Nothing comes from above because a link there is full: all below learn that there is something to ask for."""
        for direction in stream.outward:
            for broker in self.live(direction):
                self.say_behind(stream, broker, stable)

    def _notify(self, stream: PubendT, broker: BrokerId) -> None:
        """Sends a notice to a broker, unless the pubend is on its side."""
        if self.is_told(broker, stream):
            stable = stream.stable_for(self.of(broker), is_full=self._links.is_full(broker))
            self._links.send(broker, Private(PUBEND, self.notices.notice(stream, stable, behind=False)))

    # ------------------------------------------------------------------------ what the relay asks for

    @property
    def shb(self) -> ShbId:
        """The SHB of this broker, once it has spoken."""
        return self._interests.shb

    def toward_home(self, pubend: RelayedPubend, want: Want, asker: BrokerId) -> None:
        """Asks the pubend here, or the next broker on the way to it."""
        if pubend.is_here:
            self._state.effects.append(AskPubend(want, self._state.life))
        else:
            self.ask_on(pubend, want, asker)

    def say_behind(self, pubend: RelayedPubend, broker: BrokerId, stable: Tick) -> None:
        """Sends a notice that nothing up to `stable` is going to be pushed, but for what was sent before."""
        notice = Private(PUBEND, self.notices.notice(pubend, stable, behind=True))
        self._links.send(broker, notice, in_order=True)
