"""The router at the seam: which part of it takes which fact, and which message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from gapless.core.alarms import Alarm, AlarmCode
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
    decode,
    is_interest,
)
from gapless.core.network.reach import blame, check_message
from gapless.core.network.seam import Effects, RouterBase, RouterContext
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, ShbId
from gapless.errors import RemoteProtocolError
from gapless_routing.knowledge.cells import Cells
from gapless_routing.knowledge.check import check_map
from gapless_routing.knowledge.interest import CENSUS, Interests
from gapless_routing.knowledge.peers import HELLO, SIDEWAYS, Peers
from gapless_routing.knowledge.placing import PlacingWay, TreeClientSide, TreeIntake
from gapless_routing.knowledge.progress import ProgressTable
from gapless_routing.knowledge.state import CORE, LIFE, State, new_life, sizes_of
from gapless_routing.knowledge.streams import PUBEND, Streams

LINKS = Family("gapless_router_links", "Links to another broker that are up.", ("broker",))
CACHED = Family("gapless_router_cached_bytes", "Memory for events that are kept for whoever asks for them again.")

BLAME_EVERY: Final = 60 * SECOND

_INTS = (int,) * 5
_ADDRESSES: Final[dict[type, tuple[tuple[type, ...], ...]]] = {
    Knowledge: ((), (str, str)),
    InterestPart: ((int, str, str),),
    Hold: ((str,),),
    Held: ((str,),),
    Posted: ((str,),),
    OpenRequest: ((str, str, *_INTS),),
    Pub: ((str, str, *_INTS),),
    Answer: ((str, str, *_INTS[:4]),),
}
"""What may be written on the envelope of a message; nothing on all others."""


class KnowledgeRouter(RouterBase):
    """A `Router` for a tree of cells."""

    name = "knowledge"
    networks = "cells"

    def __init__(self) -> None:
        self._state: State
        self._cells: Cells
        self._peers: Peers
        self._interests: Interests
        self._progress: ProgressTable
        self._streams: Streams
        self._way: PlacingWay
        self._entry: TreeClientSide
        self._requests: TreeIntake
        self._shb_nodes: dict[ShbId, BrokerId] = {}
        """Where the SHBs are that need something kept: who has to have the answer."""
        self._blamed: dict[tuple[BrokerId, AlarmCode], int] = {}
        """When the operator is to be told again of a neighbour that says what cannot be."""
        self._on_message: dict[type, Callable[[BrokerId, Any, Address], None]]
        self._on_private: dict[int, Callable[[BrokerId, bytes], None]]
        self._on_timer: dict[str, Callable[..., object]]

    def gauges(self) -> Iterator[Gauge]:
        """To whom there are links, and how much is cached."""
        for broker, count in self._peers.link_counts().items():
            yield LINKS.gauge(count, broker)
        yield CACHED.gauge(self._streams.cached_bytes())

    def start(self, now: int, context: RouterContext) -> Effects:
        """Dials the neighbours and the mates. Raises ConfigurationError when the map is no tree of cells."""
        life = new_life(context.broker, context.seed, max(now, int(context.saved.get(LIFE, b"0"))))
        state = self._state = State(context.broker, context.seed, sizes_of(context.config), life, now)
        check_map(context.network, context.broker)
        self._cells = Cells(context.network, context.broker)
        self._peers = Peers(state, self._cells)
        self._progress = ProgressTable(state, self._cells, self._peers)
        self._interests = Interests(state, self._cells, self._peers, self._on_heard, self._read)
        self._streams = Streams(state, self._cells, self._peers, self._interests, self._progress)
        self._way = PlacingWay(state, self._cells, self._peers)
        self._entry = TreeClientSide(state, self._way, self._streams, now)
        self._requests = TreeIntake(state, self._way, lambda: self._streams.hosted)
        self._on_message = self._message_handlers()
        self._on_private = {
            HELLO: self._peers.on_hello,
            CENSUS: self._interests.on_census,
            PUBEND: self._on_notice,
        }
        self._on_timer = self._timer_handlers()
        state.save_life()
        for part in (self._peers, self._interests, self._progress, self._streams):
            part.start()
        return self._effects()

    def saved(self, now: int, saved: Saved) -> Effects:
        """This life is durable, unless it has been surpassed since: what clients place may leave in its name."""
        self._state.now = now
        if saved.cookie == self._state.life:
            self._state.life_is_durable = True
            self._entry.on_life_durable()
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
        if not self._peers.link_up(up.link, up.peer):
            return [Hangup(up.link)]
        self._streams.on_link_up(up.peer)
        self._interests.on_link_up(up.peer)
        self._progress.on_link_up(up.peer)
        return self._effects()

    def link_down(self, now: int, down: LinkDown) -> Effects:
        """A link is gone. Nothing is sent again: who misses something asks for it, over another one."""
        self._state.now = now
        broker = self._peers.link_down(down.link)
        if broker is not None:
            self._interests.sayings.link_down(broker)
            self._streams.on_link_down(broker)
        return self._effects()

    def room(self, now: int, room: LinkRoom) -> Effects:
        """A link is full, or is not any more."""
        self._state.now = now
        broker = self._peers.room(room.link, room.pending)
        if broker is not None:
            self._streams.on_room(broker)
        return self._effects()

    def frame(self, now: int, arrived: FrameArrived) -> Effects:
        """A frame of another broker; who sends nonsense is hung up on."""
        self._state.now, self._state.wall = now, arrived.wall
        peer = self._peers.at(arrived.link)
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
        self._streams.after(said.knowledge.pubend)
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
        node = self._shb_nodes.get(held.shb)
        if node is not None:
            self._pass_held(None, held, node)
        return self._effects()

    def submitted(self, now: int, submitted: Submitted) -> Effects:
        """How an opening or a batch ended."""
        self._state.now = now
        self._requests.submitted(submitted.reply_to, submitted.pubend, submitted.outcome)
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
        self._pass_hold(None, row, self._state.broker)
        return self._effects()

    def want(self, now: int, want: Want) -> Effects:
        """What the SHB needs to know."""
        self._state.now = now
        self._streams.want(want, CORE)
        return self._effects()

    def progress(self, now: int, progress: Progress) -> Effects:
        """What the SHB is done with."""
        self._state.now = now
        self._progress.on_rows((progress,), None)
        return self._effects()

    # Local clients and storage.

    def open(self, now: int, opening: SubmitOpen) -> Effects:
        """A client opens a publisher."""
        self._state.now = now
        self._entry.open(opening.request, opening.reply_to)
        return self._effects()

    def place(self, now: int, batch: Submit) -> Effects:
        """A client publishes."""
        self._state.now = now
        self._entry.place(batch.pub, batch.reply_to, batch.node)
        return self._effects()

    def post(self, now: int, mail: Post) -> Effects:
        """Mail for a role."""
        self._state.now = now
        self._pass_mail(None, Posted(self._state.broker, mail.role, mail.data), mail.to_node)
        return self._effects()

    # How it is done.

    def _read(self, link: LinkId, peer: BrokerId, frame: bytes) -> None:
        """What a broker sent on a link that may be gone."""
        try:
            message, address = decode(frame)
            if tuple(map(type, address)) not in _ADDRESSES.get(type(message), ((),)):
                raise RemoteProtocolError("an address that no router writes")
            if any(not 0 <= part <= FOREVER for part in address if isinstance(part, int)):
                raise RemoteProtocolError("a number in an address that no router has")
            handle = self._on_message.get(type(message))
            if handle is None:
                raise RemoteProtocolError("a message that this router does not know")
            check_message(message, self._streams.meta_of, self._state.wall)
            handle(peer, message, address)
        except RemoteProtocolError as error:
            if self._peers.at(link) is not None:
                self._blame(blame(peer, error))
                self._state.effects.append(Hangup(link))

    def _blame(self, alarm: Alarm) -> None:
        """The operator is told: but a neighbour that comes back at once and does it again fills no log."""
        key = alarm.about, alarm.code
        if self._state.now >= self._blamed.get(key, self._state.now):
            self._blamed[key] = self._state.now + BLAME_EVERY
            self._state.effects.append(alarm)

    def _effects(self) -> Effects:
        """What is to be done, once what was placed here for this very broker was taken in."""
        arrived = self._way.arrived
        while arrived:
            waiting = arrived.copy()
            arrived.clear()
            for peer, source, message, address in waiting:
                if isinstance(message, Answer):
                    self._take_answer(peer, source, message, address)
                else:
                    self._requests.on_request(source, message, address)
        return self._state.take_effects()

    def _take_answer(self, peer: BrokerId | None, source: BrokerId, answer: Answer, address: Address) -> None:
        try:
            self._entry.on_answer(source, answer, address)
        except RemoteProtocolError as error:
            if peer is None:  # this broker's own pubend has answered another question
                raise AssertionError(str(error)) from error
            self._blame(blame(peer, error))
            link = self._peers.link_to(peer)
            if link is not None:
                self._state.effects.append(Hangup(link))

    def _message_handlers(self) -> dict[type, Callable[[BrokerId, Any, Address], None]]:
        return {
            Knowledge: self._on_knowledge,
            Want: lambda peer, want, _: self._streams.want(want, peer),
            Probe: lambda peer, probe, _: self._streams.probe(probe, peer),
            InterestPart: self._interests.on_part,
            InterestQuestion: lambda peer, question, _: self._interests.on_question(peer, question),
            ProgressRows: lambda peer, said, _: self._progress.on_rows(said.rows, peer),
            Hold: lambda peer, row, address: self._pass_hold(peer, row, str(address[0])),
            Held: lambda peer, row, address: self._pass_held(peer, row, str(address[0])),
            OpenRequest: self._way.route,
            Pub: self._way.route,
            Answer: self._way.route,
            Posted: lambda peer, mail, address: self._pass_mail(peer, mail, str(address[0])),
            Private: self._on_private_message,
        }

    def _timer_handlers(self) -> dict[str, Callable[..., object]]:
        return {
            "hello": self._peers.beat,
            "dial": self._peers.dial,
            "census": lambda: self._progress.forget(self._interests.say_census()),
            "intake": self._interests.intake.go_on,
            "sayings": self._interests.sayings.go_on,
            "tidy": self._interests.tidy,
            "progress": self._progress.send_risen,
            "rows": self._progress.send_all,
            "notices": self._streams.repeat_notices,
            "silence": self._streams.say_silence,
            "behind": self._streams.pull_behind,
            "more": self._streams.answer_more,
            "upkeep": self._streams.keep_up,
            "question": self._entry.repeat,
        }

    def _on_knowledge(self, peer: BrokerId, knowledge: Knowledge, address: Address) -> None:
        if not address:
            self._streams.on_knowledge(peer, knowledge)
            self._streams.after(knowledge.pubend)
        elif address[0] == SIDEWAYS and peer in self._cells.mates and address[1] in self._cells.neighbours:
            self._streams.pass_on(str(address[1]), knowledge)
        else:
            raise RemoteProtocolError("knowledge that goes sideways comes from a mate")

    def _on_private_message(self, peer: BrokerId, said: Private, _: Address) -> None:
        handle = self._on_private.get(said.kind)
        if handle is None:
            raise RemoteProtocolError("a message of a kind that this router does not know")
        handle(peer, said.data)

    def _on_notice(self, peer: BrokerId, data: bytes) -> None:
        self._streams.on_notice(peer, data)
        for broker, life in self._streams.lives.items():
            self._entry.on_life(broker, life)

    def _on_heard(self, shb: ShbId, cell: str) -> None:
        self._streams.on_heard(shb, cell)

    def _pass_hold(self, sender: BrokerId | None, row: Hold, node: BrokerId) -> None:
        """A row goes to the pubend, and says at which node the SHB is."""
        owner = self._state.owners.get(row.pubend)
        if owner == self._state.broker:
            self._shb_nodes[row.shb] = node
            self._state.effects.append(row)
        elif owner is not None:
            self._peers.send_to(owner, row, sender, (node,))

    def _pass_held(self, sender: BrokerId | None, row: Held, node: BrokerId) -> None:
        """The answer goes to that node. Who heard of an SHB on the way knows a direction, and maybe no way (T59)."""
        if node == self._state.broker:
            self._state.effects.append(row)
        else:
            self._peers.send_to(node, row, sender, (node,))

    def _pass_mail(self, sender: BrokerId | None, mail: Posted, to: BrokerId) -> None:
        if to == self._state.broker:
            self._state.effects.append(mail)
        else:
            self._peers.send_to(to, mail, sender, (to,))
