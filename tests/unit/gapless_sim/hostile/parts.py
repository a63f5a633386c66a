"""One part of a hostile router by itself: what it sends is looked at, not sent."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from gapless.core.network.facts import Interest, NetworkMap, NetworkNode, SendFrame
from gapless.core.network.frames import Address, InterestPart, Message, decode
from gapless.core.network.seam import Effect
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW, Stamp
from gapless.selectors.filters import Filter
from gapless_routing.common.interest import parts_of
from gapless_sim.hostile.hostility import Hostility
from gapless_sim.hostile.mesh import Mesh, Station

NODES = {"here": ("phb", "shb"), "there": ("shb",), "far": ("phb",), "between": ()}
MAP = NetworkMap({name: NetworkNode(frozenset(roles)) for name, roles in NODES.items()})
LINKS = {"there": 3, "far": 4}
P, SHB = "p@1", "here@disk"


class Sent(NamedTuple):
    """A message that left, or came back to this very broker."""

    peer: str
    message: Message
    address: Address


class Parts:
    """What a part of a router is made with: the broker `here`, with links to `there` and `far`."""

    def __init__(self, rates: Mapping[str, float] | None = None) -> None:
        self.station = Station("here", Hostility(rates or {}, Random(5)), 77, now=1000)
        self.mesh = Mesh(self.station, MAP)
        for peer, link in LINKS.items():
            self.mesh.link_up(link, peer, 1)

    def sent(self) -> list[Sent]:
        """The messages that left since the last call; other effects stay."""
        links = {link: peer for peer, link in LINKS.items()}
        frames = [effect for effect in self.station.effects if isinstance(effect, SendFrame)]
        sent = [Sent(links[effect.link], *decode(effect.frame)) for effect in frames]
        sent += [Sent(parcel.peer, parcel.message, parcel.address) for parcel in self.mesh.arrived]
        self.mesh.arrived.clear()
        self.station.effects[:] = [effect for effect in self.station.effects if not isinstance(effect, SendFrame)]
        return sent

    def messages(self) -> list[Message]:
        """What was sent, to whomever."""
        return [sent.message for sent in self.sent()]

    def effects(self) -> list[Effect]:
        """What the cores of this node are told, since the last call."""
        effects: list[Effect] = [one for one in self.station.effects if not isinstance(one, SendFrame)]
        self.station.effects[:] = [effect for effect in self.station.effects if isinstance(effect, SendFrame)]
        return effects

    def pass_time(self, span: int) -> list[tuple[str | int, ...]]:
        """The timers that are due then."""
        self.station.now += span
        return list(self.station.timers.take_due(self.station.now))


def events(*topics: str, first: int = 11) -> EventBatch:
    """Events of these topics, at ticks one after the other."""
    encoded = [encode_event(topic, {}, None, b"") for topic in topics]
    return EventBatch(list(range(first, first + len(topics))), encoded, [0] * len(topics))


def knowledge(lo: int = 10, hi: int = 20, *topics: str, stamp: Stamp = RAW, reply: bool = False) -> Knowledge:
    """Events of these topics from `lo` on, and silence."""
    data = events(*topics, first=lo + 1) if topics else EMPTY
    return Knowledge(P, lo, hi, data, stamp=stamp, reply=reply)


def full(version: int, shb: str, **filters: str) -> Interest:
    """A whole interest; each filter is a topic pattern."""
    add = {number: Filter((topic,)) for number, topic in enumerate(filters.values())}
    return Interest(shb, 0, version, add, full=True)


def whole(interest: Interest) -> InterestPart:
    """An interest as it travels, when it is no larger than a frame."""
    (part,) = parts_of(interest)
    return part
