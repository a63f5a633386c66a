"""A router over the relay, without the shape of its network: which part takes which fact, message and timer.

A router derives from `RelayRouter` and makes the parts in `start`. What is left to it is where things go: what happens
when a link comes up or goes down, to whom notices are sent, and the protocols `Directions` and `Unicast`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from gapless.core.gauges import Family, Gauge
from gapless.core.network.facts import (
    BrokerId,
    Enrolled,
    FrameArrived,
    Hangup,
    Held,
    Hold,
    Interest,
    Know,
    LinkDown,
    LinkId,
    LinkRoom,
    LinkUp,
    Opened,
    OpenRequest,
    Post,
    Posted,
    Probe,
    Progress,
    Pub,
    Saved,
    Submit,
    SubmitOpen,
    Submitted,
    Wake,
    Want,
)
from gapless.core.network.frames import (
    Address,
    Answer,
    InterestPart,
    InterestQuestion,
    Private,
    ProgressRows,
    is_interest,
)
from gapless.core.network.seam import Effects, RouterBase, RouterContext
from gapless.core.network.timer_queue import MILLISECOND
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import ShbId
from gapless.errors import RemoteProtocolError
from gapless_routing.common.addressed import Addressed
from gapless_routing.common.interest_flow import CENSUS, InterestFlow
from gapless_routing.common.link_table import LinkTable
from gapless_routing.common.progress import ProgressTable
from gapless_routing.common.pubend_flow import PUBEND, PubendFlow
from gapless_routing.common.reading import ADDRESSES, AddressKinds, Reader
from gapless_routing.common.relay import SILENCE_AFTER
from gapless_routing.common.routed_placing import RoutedPlacing, Unicast
from gapless_routing.common.router_state import CORE, LIFE, RouterState, new_life

LINKS = Family("gapless_router_links", "Links to another broker that are up.", ("broker",))
CACHED = Family("gapless_router_cached_bytes", "Memory for events that are kept for whoever asks for them again.")

MessageHandlers: TypeAlias = "dict[type, Callable[[BrokerId, Any, Address], None]]"
PrivateHandlers: TypeAlias = "dict[int, Callable[[BrokerId, bytes], None]]"
TimerHandlers: TypeAlias = "dict[str, Callable[..., object]]"


class RelayRouter(RouterBase):
    """What all routers over the relay do alike.

    `start` calls `_begin`, makes the parts that are declared in `__init__` down to `_streams`, calls `_connect`, and
    starts them.
    """

    def __init__(self) -> None:
        self._state: RouterState
        self._links: LinkTable
        self._interests: InterestFlow
        self._progress: ProgressTable
        self._streams: PubendFlow[Any]
        self._placing: RoutedPlacing
        self._addressed: Addressed
        self._reader: Reader
        self._on_private: PrivateHandlers
        self._on_timer: TimerHandlers

    def gauges(self) -> Iterator[Gauge]:
        """To whom there are links, and how much is cached."""
        for broker, count in self._links.link_counts().items():
            yield LINKS.gauge(count, broker)
        yield CACHED.gauge(self._streams.relay.cached_bytes())

    def _begin(self, now: int, context: RouterContext) -> RouterState:
        """The state of this life, which all parts are made with."""
        life = new_life(context.broker, context.seed, max(now, int(context.saved.get(LIFE, b"0"))))
        self._state = RouterState(context.broker, context.seed, life, now)
        return self._state

    def _connect(self, way: Unicast, addresses: AddressKinds = ADDRESSES) -> None:
        """Makes the other parts: those that no router makes in its own way. `addresses`: as of `Reader`."""
        state = self._state
        self._placing = RoutedPlacing(state, way, self._streams.notices, self._refuse)
        self._addressed = Addressed(state, way)
        self._reader = Reader(state, self._links, self._streams.notices.meta_of, self._message_handlers(), addresses)
        self._on_private = self._private_handlers()
        self._on_timer = self._timer_handlers()
        state.save_life()

    # Time, and what is durable.

    def saved(self, now: int, saved: Saved) -> Effects:
        """This life is durable, unless it has been surpassed since: what clients place may leave in its name."""
        self._state.now = now
        if saved.cookie == self._state.life:
            self._state.life_is_durable = True
            self._placing.entry.on_life_durable()
        return self._effects()

    def next_wake(self) -> int | None:
        """When a timer is due."""
        return self._state.timers.next()

    def wake(self, now: int, _: Wake) -> Effects:
        """Something is due."""
        self._state.now = now
        for kind, *arguments in self._state.timers.take_due(now):
            self._on_timer[str(kind)](*arguments)
        return self._effects()

    # The network.

    def link_up(self, now: int, up: LinkUp) -> Effects:
        """A link is there: who is at its end is told all that concerns him."""
        self._state.now = now
        if not self._links.link_up(up.link, up.peer):
            return [Hangup(up.link)]
        self._is_there(up.peer)
        return self._effects()

    def link_down(self, now: int, down: LinkDown) -> Effects:
        """A link is gone. Nothing is sent again: who misses something asks for it, over another one."""
        self._state.now = now
        broker = self._links.link_down(down.link)
        if broker is not None:
            self._is_gone(broker)
        return self._effects()

    def room(self, now: int, room: LinkRoom) -> Effects:
        """A link is full, or is not any more."""
        self._state.now = now
        broker = self._links.room(room.link, room.pending)
        if broker is not None:
            self._streams.relay.on_room(broker)
        return self._effects()

    def frame(self, now: int, arrived: FrameArrived) -> Effects:
        """A frame of another broker; who sends nonsense is hung up on."""
        self._state.now, self._state.wall = now, arrived.wall
        peer = self._links.at(arrived.link)
        if peer is None:
            return []
        if is_interest(arrived.frame):
            self._interests.intake.take_frame(arrived.link, peer, arrived.frame)
        else:
            self._read(arrived.link, peer, arrived.frame)
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

    def held(self, now: int, held: Held) -> Effects:
        """A row of holds is durable: the SHB's own broker hears of it."""
        self._state.now = now
        self._addressed.held(held)
        return self._effects()

    def submitted(self, now: int, submitted: Submitted) -> Effects:
        """How an opening or a batch ended."""
        self._state.now = now
        self._placing.requests.submitted(submitted.reply_to, submitted.pubend, submitted.outcome)
        return self._effects()

    # The local SHB core.

    def interest(self, now: int, interest: Interest) -> Effects:
        """The SHB's interest."""
        self._state.now = now
        self._interests.on_own(interest)
        self._streams.on_own_interest(full=interest.full)
        return self._effects()

    def hold(self, now: int, row: Hold) -> Effects:
        """What the SHB needs kept."""
        self._state.now = now
        self._addressed.hold(row)
        return self._effects()

    def want(self, now: int, want: Want) -> Effects:
        """What the SHB needs to know."""
        self._state.now = now
        self._streams.relay.want(want, CORE)
        return self._effects()

    def progress(self, now: int, progress: Progress) -> Effects:
        """What the SHB is done with."""
        self._state.now = now
        self._progress.on_rows((progress,))
        return self._effects()

    # Local clients and storage.

    def open(self, now: int, opening: SubmitOpen) -> Effects:
        """A client opens a publisher."""
        self._state.now = now
        self._placing.entry.open(opening.request, opening.reply_to)
        return self._effects()

    def place(self, now: int, batch: Submit) -> Effects:
        """A client publishes."""
        self._state.now = now
        self._placing.entry.place(batch.pub, batch.reply_to, batch.node)
        return self._effects()

    def post(self, now: int, mail: Post) -> Effects:
        """Mail for a role."""
        self._state.now = now
        self._addressed.post(mail)
        return self._effects()

    # How it is done.

    def _message_handlers(self) -> MessageHandlers:
        """Who takes which message; a router may add its own."""
        return {
            Knowledge: self._on_knowledge,
            Probe: lambda peer, probe, _: self._streams.probe(probe, peer),
            Private: self._on_private_message,
            Want: lambda peer, want, _: self._streams.relay.want(want, peer),
            InterestPart: self._interests.on_part,
            InterestQuestion: lambda peer, question, _: self._interests.on_question(peer, question),
            ProgressRows: lambda _, said, __: self._progress.on_rows(said.rows),
            Hold: self._addressed.on_hold,
            Held: self._addressed.on_held,
            Posted: self._addressed.on_posted,
            OpenRequest: self._placing.way.route,
            Pub: self._placing.way.route,
            Answer: self._placing.way.route,
        }

    def _private_handlers(self) -> PrivateHandlers:
        """Who takes what only routers of one kind send each other; a router may add its own."""
        return {CENSUS: self._interests.on_census, PUBEND: self._on_notice}

    def _timer_handlers(self) -> TimerHandlers:
        """Whose timer is which; a router may add its own."""
        return {
            "dial": self._links.dial,
            "census": lambda: self._progress.forget(self._interests.say_census()),
            "intake": self._interests.intake.go_on,
            "sayings": self._interests.sayings.go_on,
            "tidy": self._interests.table.tidy,
            "notices": self._streams.repeat_notices,
            "question": self._placing.entry.repeat,
            "progress": self._progress.send_risen,
            "rows": self._progress.send_all,
            "silence": self._streams.relay.say_silence,
            "behind": self._streams.relay.pull_behind,
            "more": self._streams.relay.answer_more,
            "upkeep": self._streams.relay.keep_up,
        }

    def _on_knowledge(self, peer: BrokerId, knowledge: Knowledge, address: Address) -> None:
        self._streams.on_knowledge(peer, knowledge, slack_of(address))

    def _on_private_message(self, peer: BrokerId, said: Private, _: Address) -> None:
        handle = self._on_private.get(said.kind)
        if handle is None:
            raise RemoteProtocolError("a message of a kind that this router does not know")
        handle(peer, said.data)

    def _on_notice(self, peer: BrokerId, data: bytes) -> None:
        self._streams.on_notice(peer, data)
        self._placing.on_lives()

    def _is_there(self, broker: BrokerId) -> None:
        """A link to a broker is up: it is told of pubends, interests and rows."""
        self._streams.on_link_up(broker)
        self._interests.on_link_up(broker)
        direction = self._streams.of(broker)
        self._progress.on_link_up(broker, lambda pubend: self._streams.toward(pubend) == direction)

    def _is_gone(self, broker: BrokerId) -> None:
        """A link to a broker is down."""
        self._interests.sayings.link_down(broker)
        self._streams.on_link_down(broker)

    def _read(self, link: LinkId, peer: BrokerId, frame: bytes) -> None:
        self._reader.read(link, peer, frame)

    def _refuse(self, peer: BrokerId, error: RemoteProtocolError) -> None:
        self._reader.refuse(peer, error)

    def _on_heard(self, shb: ShbId, direction: str) -> None:
        """An SHB was heard of: it may have to be enrolled at the pubends here."""
        self._streams.notices.on_heard(shb, self._interests.table.shbs(direction)[shb])

    def _effects(self) -> Effects:
        """What is to be done, once what was placed here for this very broker was taken in."""
        self._placing.settle()
        return self._state.take_effects()


def slack_of(address: Address) -> int:
    """Returns for how many nanoseconds the silence in some knowledge may still wait, as its address says."""
    return min(int(address[0]) * MILLISECOND, SILENCE_AFTER) if address else 0
