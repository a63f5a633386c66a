"""The router `hostile`: everything that the contract of the seam permits, at rates that are given to it.

It is made for simulations. With no rates it is an honest router for any number of brokers, each with links
to all others; what it does with rates is listed in `BEHAVIOURS`. It loses, repeats, delays and reorders,
over-delivers and forgets; it never asserts silence that a pubend did not, never counts a member as done
that was not heard, and ends every opening and every batch once.

It is configured with the rates:

    {"hostility": {"lose": 0.1}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

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
    LinkRoom,
    LinkUp,
    Opened,
    OpenRequest,
    Post,
    Posted,
    Probe,
    Progress,
    Pub,
    PubendMeta,
    Seen,
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
    InterestSummary,
    ProgressRows,
    decode,
)
from gapless.core.network.placing import ClientSide
from gapless.core.network.reach import AHEAD_MAX, blame, check_message
from gapless.core.network.seam import Effects, RouterBase, RouterContext
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import LAST, PubendId, tick_at
from gapless.errors import ConfigurationError, RemoteProtocolError
from gapless_sim.hostile.hostility import Hostility
from gapless_sim.hostile.mesh import Mesh, Station
from gapless_sim.hostile.publisher_side import PublisherSide
from gapless_sim.hostile.requests import HostileIntake
from gapless_sim.hostile.subscriber_side import SubscriberSide

LINKS = Family("gapless_router_links", "Links to another broker that are up.", ("broker",))
HOUSEKEEPING_INTERVAL = 1 * SECOND
FORGOTTEN_WITHIN = 10 * SECOND
_LIFE_BITS = 48
_ADDRESSES: dict[type, tuple[type, ...]] = {
    Seen: (str, int),
    OpenRequest: (int, int, int, int, int),
    Pub: (int, int, int, int, int),
    Answer: (int, int, int, int),
}
"""What is written on the envelope of a message; nothing on all others."""


class HostileRouter(RouterBase):
    """A `Router` for a full mesh of brokers."""

    name = "hostile"
    networks = "mesh"

    def __init__(self) -> None:
        self._station: Station
        self._mesh: Mesh
        self._hosted: PublisherSide
        self._following: SubscriberSide
        self._entry: ClientSide
        self._requests: HostileIntake
        self._on_message: dict[type, Callable[[BrokerId, Any, Address], None]]
        self._on_timer: dict[str, Callable[..., None]]

    def gauges(self) -> Iterator[Gauge]:
        """Which brokers it has links to, and how many."""
        for broker, count in self._mesh.link_counts().items():
            yield LINKS.gauge(count, broker)

    def start(self, now: int, context: RouterContext) -> Effects:
        """Dials everybody. Raises ConfigurationError when the configuration makes no sense."""
        config = dict(context.config)
        rates = config.pop("hostility", {})
        if config:
            raise ConfigurationError(f"the router 'hostile' has no option {min(config)!r}")
        random = Random(f"{context.seed}/{context.broker}")  # noqa: S311 - no secret
        station = Station(context.broker, Hostility(rates, random), _new_life(random))
        self._station = station
        self._mesh = Mesh(station, context.network)
        self._hosted = PublisherSide(station, self._mesh)
        self._following = SubscriberSide(station, self._mesh)
        self._entry = ClientSide(station, self._mesh, now)
        self._requests = HostileIntake(station, self._mesh, self._hosted.pubends)
        self._on_message = self._message_handlers()
        self._on_timer = self._timer_handlers()
        station.now = now
        station.timers.set(("housekeep",), station.within(HOUSEKEEPING_INTERVAL))
        self._mesh.start()
        return self._effects()

    def next_wake(self) -> int | None:
        """When a timer is due."""
        return self._station.timers.next()

    def wake(self, now: int, _: Wake) -> Effects:
        """Something is due."""
        self._station.now = now
        for kind, *arguments in self._station.timers.take_due(now):
            self._on_timer[str(kind)](*arguments)
        return self._effects()

    # The network.

    def link_up(self, now: int, up: LinkUp) -> Effects:
        """A link is there; the broker at its end, if the map has it, gets everything that it may have use for."""
        self._station.now = now
        if not self._mesh.knows(up.peer):
            return [Hangup(up.link)]
        if self._mesh.link_up(up.link, up.peer, up.incarnation):
            self._hosted.on_new_peer(up.peer)
        self._following.on_new_peer(up.peer)
        return self._effects()

    def link_down(self, now: int, down: LinkDown) -> Effects:
        """A link is gone; it is dialled again after a while."""
        self._station.now = now
        self._mesh.link_down(down.link)
        return self._effects()

    def room(self, now: int, room: LinkRoom) -> Effects:
        """A link is full, or is not any more."""
        self._mesh.room(room.link, room.pending)
        return []

    def frame(self, now: int, arrived: FrameArrived) -> Effects:
        """A frame of another broker; who sends nonsense is hung up on."""
        self._station.now = now
        peer = self._mesh.peer_of(arrived.link)
        if peer is None:
            return []
        try:
            message, address = decode(arrived.frame)
            if tuple(map(type, address)) != _ADDRESSES.get(type(message), ()) or type(message) not in self._on_message:
                raise RemoteProtocolError("a message that this router does not know, or another address")
            check_message(message, self._meta_of, arrived.wall)
            if self._is_incredible(message, arrived.wall):
                return self._effects()
            self._on_message[type(message)](peer, message, address)
        except RemoteProtocolError as error:
            return [*self._effects(), blame(peer, error), Hangup(arrived.link)]
        return self._effects()

    # The local PHB core.

    def pubend(self, now: int, opened: Opened) -> Effects:
        """A pubend of this node, as it is now."""
        self._station.now = now
        self._hosted.pubend(opened.meta, opened.members)
        return self._effects()

    def know(self, now: int, said: Know) -> Effects:
        """Facts of a pubend of this node."""
        self._station.now = now
        self._hosted.know(said.knowledge, said.reply_to)
        return self._effects()

    def probe(self, now: int, probe: Probe) -> Effects:
        """Progress is overdue."""
        self._station.now = now
        self._hosted.probe(probe)
        return self._effects()

    def enrolled(self, now: int, enrolled: Enrolled) -> Effects:
        """A membership is durable."""
        self._station.now = now
        self._hosted.enrolled(enrolled.pubend, enrolled.shb, enrolled.at)
        return self._effects()

    def held(self, now: int, held: Held) -> Effects:
        """A row of holds is durable."""
        self._station.now = now
        self._hosted.held(held)
        return self._effects()

    def submitted(self, now: int, submitted: Submitted) -> Effects:
        """How an opening or a batch ended."""
        self._station.now = now
        self._requests.submitted(submitted.reply_to, submitted.pubend, submitted.outcome)
        return self._effects()

    # The local SHB core.

    def interest(self, now: int, interest: Interest) -> Effects:
        """The SHB's interest."""
        self._station.now = now
        self._following.interest(interest)
        return self._effects()

    def hold(self, now: int, row: Hold) -> Effects:
        """What the SHB needs kept."""
        self._station.now = now
        self._following.hold(row)
        return self._effects()

    def want(self, now: int, want: Want) -> Effects:
        """What the SHB needs to know."""
        self._station.now = now
        self._following.want(want)
        return self._effects()

    def progress(self, now: int, progress: Progress) -> Effects:
        """What the SHB is done with."""
        self._station.now = now
        self._following.progress(progress)
        return self._effects()

    # Local clients and storage.

    def open(self, now: int, opening: SubmitOpen) -> Effects:
        """A client opens a publisher."""
        self._station.now = now
        self._entry.open(opening.request, opening.reply_to)
        return self._effects()

    def place(self, now: int, batch: Submit) -> Effects:
        """A client publishes."""
        self._station.now = now
        self._entry.place(batch.pub, batch.reply_to, batch.node)
        return self._effects()

    def post(self, now: int, mail: Post) -> Effects:
        """Mail for a role."""
        self._station.now = now
        if self._mesh.knows(mail.to_node):
            self._mesh.send(mail.to_node, Posted(self._station.broker, mail.role, mail.data))
        return self._effects()

    # For who drives a simulation.

    def stop_hostility(self) -> None:
        """From now on it is honest, whatever the rates were."""
        self._station.hostility.stop()

    # How it is done.

    def _effects(self) -> Effects:
        """What is to be done, when the router's own halves have said to each other what there was to say."""
        arrived = self._mesh.arrived
        while arrived:
            parcels = arrived.copy()
            arrived.clear()
            for peer, _, message, address in parcels:
                self._on_message[type(message)](peer, message, address)
        effects, self._station.effects[:] = self._station.effects.copy(), []
        return effects

    def _message_handlers(self) -> dict[type, Callable[[BrokerId, Any, Address], None]]:
        hosted, following = self._hosted, self._following
        return {
            Knowledge: lambda peer, said, _: following.on_knowledge(peer, said),
            Seen: self._on_seen,
            Probe: lambda peer, said, _: following.on_probe(peer, said),
            Held: lambda peer, said, _: following.on_held(peer, said),
            InterestQuestion: lambda peer, said, _: following.on_question(peer, said),
            InterestPart: lambda peer, said, _: hosted.on_interest(peer, said),
            InterestSummary: lambda peer, said, _: hosted.on_summary(peer, said),
            Want: lambda peer, said, _: hosted.on_want(peer, said),
            ProgressRows: lambda peer, said, _: hosted.on_progress(peer, said),
            Hold: lambda peer, said, _: hosted.on_hold(peer, said),
            OpenRequest: self._requests.on_request,
            Pub: self._requests.on_request,
            Answer: self._entry.on_answer,
            Posted: lambda _peer, said, _: self._station.effects.append(said),
        }

    def _timer_handlers(self) -> dict[str, Callable[..., None]]:
        return {
            "housekeep": self._housekeep,
            "dial": self._mesh.dial,
            "held": self._mesh.release,
            "late": self._mesh.send_late,
            "silence": self._hosted.flush,
            "said": self._following.say_late,
            "rows": self._following.say_rows,
            "merge": self._following.deliver_waiting,
            "question": self._entry.repeat,
            "submit": self._requests.submit_late,
        }

    def _on_seen(self, peer: BrokerId, seen: Seen, address: Address) -> None:
        self._entry.on_life(peer, int(address[1]))
        self._following.on_seen(peer, seen, address)

    def _meta_of(self, pubend: PubendId) -> PubendMeta | None:
        hosted = self._hosted.pubends.get(pubend)
        return self._following.meta_of(pubend) if hosted is None else hosted.meta

    def _is_incredible(self, message: object, wall: int) -> bool:
        """Whether it is knowledge of a pubend of which this router has not heard how far it has come, and goes far."""
        if not isinstance(message, Knowledge) or self._meta_of(message.pubend) is not None:
            return False
        return tick_at(wall) + AHEAD_MAX < max(message.hi, message.lost) < LAST

    def _housekeep(self) -> None:
        self._station.timers.set(("housekeep",), self._station.now + HOUSEKEEPING_INTERVAL)
        if self._station.hostility.happens("forget", HOUSEKEEPING_INTERVAL / FORGOTTEN_WITHIN):
            self._forget()
        self._hosted.housekeep()
        self._following.housekeep()

    def _forget(self) -> None:
        station = self._station
        station.life = _new_life(station.hostility.random)
        station.owners.clear()
        station.owners.update(dict.fromkeys(self._hosted.pubends, station.broker))
        self._hosted.forget()
        self._following.forget()
        self._entry.forget()
        self._requests.forget()


def _new_life(random: Random) -> int:
    return random.randrange(1, 1 << _LIFE_BITS)
