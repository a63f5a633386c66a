"""Everything that brokers say to each other, decoded, for oracles that judge by hop.

A frame is shown when it is sent and when it arrives, with the link that it is on: a link that goes down and comes up
again is another one. What does not parse is shown to nobody: that is an affair of the routers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from gapless.core.network.frames import Address, Frame, Message, NamedKnowledge, StampSaid, decode
from gapless.errors import RemoteProtocolError
from gapless_routing.common.stamp_book import StampBook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.world import Life, World


class LinkBetween(Protocol):
    """A link between two brokers, for whoever watches it. Lists say how it is towards each end."""

    ends: tuple[SimBroker, SimBroker]
    lives: tuple[Life, Life]
    """The processes that have it."""
    rates: list[int]
    """Bytes a second, 0 for no limit."""
    busy_until: list[int]
    pending: list[int]
    """Bytes that wait, as the node is told."""

    @property
    def numbers(self) -> Sequence[int]:
        """What each end calls it."""

    @property
    def up(self) -> bool:
        """Whether it is up."""


class Hop(NamedTuple):
    """One direction of one link, as long as it is up."""

    link: LinkBetween
    end: int
    """Which of its ends is the target's."""

    @property
    def source(self) -> str:
        """Who speaks."""
        return self.link.ends[1 - self.end].name

    @property
    def target(self) -> str:
        """Who listens."""
        return self.link.ends[self.end].name

    @property
    def back(self) -> Hop:
        """The other direction."""
        return Hop(self.link, 1 - self.end)

    @property
    def is_up(self) -> bool:
        """Whether both ends still have the link."""
        return self.link.up and not any(life.over for life in self.link.lives)

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


class HopWatcher(Protocol):
    """Who watches what brokers say to each other."""

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """A frame is about to be sent; it may be lost."""

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """A frame is about to arrive."""


class FrameTap:
    """Shows each frame to all watchers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.watchers: list[HopWatcher] = []
        """Called with everything, in this order."""
        self._stamps: dict[Hop, StampBook] = {}
        """What each end has heard by name on each link: a stamp that was lost means nothing to it."""

    def sent(self, link: LinkBetween, index: int, frame: bytes) -> None:
        """A broker sends a frame to this end of a link."""
        read = read_frame(frame) if self.watchers else None
        if read is not None:
            hop = Hop(link, index)
            message = self._by_name(hop, read.message, has_arrived=False)
            for watcher in self.watchers:
                watcher.frame_sent(hop, message, read.address, len(frame))

    def arrived(self, link: LinkBetween, index: int, frame: bytes) -> None:
        """A frame comes to this end of a link."""
        read = read_frame(frame) if self.watchers else None
        if read is not None:
            hop = Hop(link, index)
            message = self._by_name(hop, read.message, has_arrived=True)
            for watcher in self.watchers:
                watcher.frame_arrived(hop, message, read.address)

    def _by_name(self, hop: Hop, message: Message, *, has_arrived: bool) -> Message:
        """What a message says to its receiver; or what its sender says, if it has not arrived yet."""
        if type(message) is StampSaid:
            book = self._stamps.setdefault(hop, StampBook())
            book.hear(message.stamp) if has_arrived else book.say(message.stamp)
        if type(message) is not NamedKnowledge:
            return message
        book = self._stamps.get(hop, StampBook())
        stamp = book.heard(message.name) if has_arrived else book.said(message.name)
        return message.knowledge if stamp is None else replace(message.knowledge, stamp=stamp)


@lru_cache(maxsize=1024)
def read_frame(frame: bytes) -> Frame | None:
    """What a frame says, and what is written on it: it is asked for twice, and where it is repeated more often."""
    try:
        return decode(frame)
    except RemoteProtocolError:
        return None
