"""Every broker has a link to every other: who is there, and how a message gets to it (or does not)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gapless.core.network.facts import LINK_HIGH, LINK_LOW, BrokerId, Dial, LinkId, NetworkMap, SendFrame
from gapless.core.network.frames import Address, Message, encode, pieces
from gapless.core.network.seam import Effect
from gapless.core.network.timer_queue import MILLISECOND, SECOND, TimerQueue
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId
from gapless_sim.hostile.hostility import Hostility

REDIAL = 2 * SECOND
"""How long a dialled peer may take."""
DELAY = 2 * SECOND
MUCH_LATER = 20 * SECOND
OVERTAKEN = 50 * MILLISECOND
"""How long a message waits at most for the one that is to overtake it."""
LATE_MAX = 500
"""How many messages may be late at a time."""


@dataclass(slots=True)
class Station:
    """What all parts of one router share."""

    broker: BrokerId
    hostility: Hostility
    life: int
    """Drawn anew whenever everything was forgotten: what belongs to another life is not answered."""
    timers: TimerQueue = field(default_factory=TimerQueue)
    effects: list[Effect] = field(default_factory=list)
    now: int = 0
    owners: dict[PubendId, BrokerId] = field(default_factory=dict)
    """Where each pubend is, as far as that is known."""

    def within(self, span: int) -> int:
        """A time within a span from now."""
        return self.now + self.hostility.random.randint(1, span)


@dataclass(slots=True)
class Peer:
    """Another broker, or this one."""

    links: dict[LinkId, int] = field(default_factory=dict)
    """Each with the peer's incarnation; the last one is used."""

    @property
    def link(self) -> LinkId | None:
        """Where to send."""
        return next(reversed(self.links), None)

    @property
    def incarnation(self) -> int | None:
        """Who is there at present."""
        return next(reversed(self.links.values()), None)


class Parcel(NamedTuple):
    """A message on its way."""

    peer: BrokerId
    link: LinkId | None
    message: Message
    address: Address


class Mesh:
    """Sends messages to brokers, this one among them."""

    def __init__(self, station: Station, network: NetworkMap) -> None:
        self._station = station
        self._peers = {broker: Peer() for broker in network.nodes}
        self._with_role = {role: network.with_role(role) for role in ("phb", "shb")}
        self._links: dict[LinkId, BrokerId] = {}
        self._full: dict[LinkId, None] = {}
        """The links on which so much waits that nothing more is sent."""
        self.arrived: list[Parcel] = []
        """For this very broker."""
        self._held: dict[BrokerId, Parcel] = {}
        self._late: dict[int, Parcel] = {}
        self._count = 0
        self._encoded: tuple[Message, Address, bytes] | None = None

    def start(self) -> None:
        """Dials everybody."""
        for broker in self._peers:
            if broker != self._station.broker:
                self.dial(broker)

    # ------------------------------------------------------------------------------------- who is there

    def with_role(self, role: str) -> list[BrokerId]:
        """The brokers that have a role, in an order that is the same everywhere."""
        return self._with_role[role]

    def everybody(self) -> list[BrokerId]:
        """Every broker of the network, this one too."""
        return list(self._peers)

    def incarnation(self, broker: BrokerId) -> int | None:
        """Who is there at present; None: nobody. This broker itself is always there."""
        return 0 if broker == self._station.broker else self._peers[broker].incarnation

    def life_for(self, broker: BrokerId) -> int:
        """This router's life as the process at a broker knows it: another process gets another one.

        So what is sent to it says for which process it was meant, and by which one it was said.
        """
        return self._station.life + (self.incarnation(broker) or 0)

    def link_counts(self) -> dict[BrokerId, int]:
        """How many links there are to each other broker."""
        return {name: len(peer.links) for name, peer in self._peers.items() if name != self._station.broker}

    def peer_of(self, link: LinkId) -> BrokerId | None:
        """Who is at the end of a link."""
        return self._links.get(link)

    # --------------------------------------------------------------------------------------------- links

    def link_up(self, link: LinkId, broker: BrokerId, incarnation: int) -> bool:
        """A link is there; returns whether it leads to somebody new."""
        peer = self._peers[broker]
        is_new = peer.incarnation != incarnation
        self._links[link] = broker
        peer.links[link] = incarnation
        self._station.timers.cancel(("dial", broker))
        return is_new

    def link_down(self, link: LinkId) -> None:
        """A link is gone: without another one to that peer, it is dialled after a while."""
        broker = self._links.pop(link, None)
        if broker is None:
            return
        self._full.pop(link, None)
        peer = self._peers[broker]
        del peer.links[link]
        if not peer.links:
            self._station.timers.set(("dial", broker), self._station.within(SECOND))

    def room(self, link: LinkId, pending: int) -> None:
        """So many bytes wait on a link. What would add to them is not sent; it is asked for, as if it were lost."""
        if pending > LINK_HIGH and link in self._links:
            self._full[link] = None
        elif pending <= LINK_LOW:
            self._full.pop(link, None)

    def dial(self, broker: BrokerId) -> None:
        """Dials a peer, and again as long as there is no link to it."""
        if not self._peers[broker].links:
            self._station.effects.append(Dial(broker))
            self._station.timers.set(("dial", broker), self._station.now + REDIAL)

    # ------------------------------------------------------------------------------------------- sending

    def knows(self, broker: BrokerId) -> bool:
        """Whether there is such a broker: this one, or a peer."""
        return broker in self._peers

    def has_way(self, broker: BrokerId) -> bool:
        """Whether there is a link to it, or it is this one."""
        return broker == self._station.broker or self._peers[broker].link is not None

    def send(self, broker: BrokerId, message: Message, address: Address = ()) -> None:
        """Sends a message, or whatever hostility makes of that. Nothing goes where there is no link."""
        is_here = broker == self._station.broker
        link = None if is_here else self._peers[broker].link
        if link is None and not is_here:
            return
        for piece in pieces(message) if isinstance(message, Knowledge) else (message,):
            parcel = Parcel(broker, link, piece, address)
            if self._station.hostility.quiet:
                self._emit(parcel)
            else:
                self._mistreat(parcel)

    def _mistreat(self, parcel: Parcel) -> None:
        happens = self._station.hostility.happens
        if happens("lose"):
            return
        if happens("delay"):
            self._send_late(parcel, DELAY)
            return
        if happens("reorder") and parcel.peer not in self._held:
            self._held[parcel.peer] = parcel
            self._station.timers.set(("held", parcel.peer), self._station.now + OVERTAKEN)
            return
        self._emit(parcel)
        if happens("repeat"):
            self._emit(parcel)
        if happens("repeat_late"):
            self._send_late(parcel, MUCH_LATER)
        self.release(parcel.peer)

    def release(self, broker: BrokerId) -> None:
        """What was to be overtaken was, or waited long enough."""
        parcel = self._held.pop(broker, None)
        if parcel is not None:
            self._station.timers.cancel(("held", broker))
            self._emit(parcel)

    def _send_late(self, parcel: Parcel, span: int) -> None:
        if len(self._late) >= LATE_MAX:
            return
        self._count += 1
        self._late[self._count] = parcel
        self._station.timers.set(("late", self._count), self._station.within(span))

    def send_late(self, number: int) -> None:
        """A late message goes now, if its link has lasted that long."""
        self._emit(self._late.pop(number))

    def _emit(self, parcel: Parcel) -> None:
        if parcel.link is None:
            self.arrived.append(parcel)
            return
        if parcel.link not in self._links or parcel.link in self._full:
            return
        said = self._encoded
        if said is None or said[0] is not parcel.message or said[1] != parcel.address:
            said = self._encoded = (parcel.message, parcel.address, encode(parcel.message, parcel.address))
        urgent = type(parcel.message) is not Knowledge
        self._station.effects.append(SendFrame(parcel.link, said[2], urgent))
