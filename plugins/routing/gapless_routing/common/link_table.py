"""The links of a broker: which there are, which are full, and how something is sent on them.

A router wishes for a link to some brokers, and those are dialled for as long as there is none. Others may be welcome:
they are not dialled, but a link that they make is kept. There may be several
links to one broker for a while; the newest is used. On a link that is full (`LinkRoom`) nothing is sent that can wait:
it would only grow old there, and whoever misses it asks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from gapless.core.network.facts import LINK_HIGH, LINK_LOW, BrokerId, Dial, Hangup, LinkId, Pub, SendFrame, Undial
from gapless.core.network.frames import (
    Address,
    InterestPart,
    Message,
    NamedKnowledge,
    StampQuestion,
    StampSaid,
    encode,
    pieces,
)
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.knowledge import Knowledge
from gapless_routing.common.router_state import RouterState
from gapless_routing.common.stamp_book import StampBook

REDIAL: Final = 2 * SECOND
"""How long a dialled broker may take."""
SLOW_LASTS: Final = 10 * SECOND
"""A link that was full counts as slow for so long."""
STAMP_SHBS: Final = 8
CAN_WAIT: Final = (Knowledge, InterestPart, Pub)
"""What is not sent on a full link."""


class LinkTable:
    """The links of this broker. The router sets no timer of the kind "dial" itself: `dial` is what it calls for it."""

    def __init__(
        self,
        state: RouterState,
        wished: Iterable[BrokerId],
        stamp_shbs: int = STAMP_SHBS,
        welcome: Container[BrokerId] = (),
    ) -> None:
        """`wished`: the brokers to which there should be a link, in the order in which they are dialled.

        `stamp_shbs`: a stamp of more SHBs travels by name. `welcome`: whose links are kept, too.
        """
        self._state = state
        self._stamp_shbs = stamp_shbs
        self._welcome = welcome
        self._wished = dict.fromkeys(wished)
        self._links: dict[LinkId, BrokerId] = {}
        self._links_of: dict[BrokerId, dict[LinkId, None]] = {}
        self._stamps: dict[LinkId, StampBook] = {}
        self._full: dict[LinkId, None] = {}
        self._full_until: dict[LinkId, int] = {}
        """When a link was last full that is not full any more."""
        self._said: dict[LinkId, int] = {}
        """How many bytes that can wait were said on each link in this instant: the node has not reported them yet."""
        self._said_at = 0

    def __contains__(self, broker: object) -> bool:
        """Whether there is a link to a broker."""
        return broker in self._links_of

    def __iter__(self) -> Iterator[BrokerId]:
        """The brokers to which there is a link."""
        return iter(self._links_of)

    # ---------------------------------------------------------------------------------------- links

    def start(self) -> None:
        """Dials everybody."""
        for broker in self._wished:
            self.dial(broker)

    def wish(self, broker: BrokerId) -> None:
        """From now on there should be a link to a broker, too."""
        if broker not in self._wished:
            self._wished[broker] = None
            self.dial(broker)

    def let_go(self, broker: BrokerId) -> None:
        """From now on there need be no link to a broker. One that is there stays as long as the other end wishes it."""
        if broker in self._wished:
            del self._wished[broker]
            self._state.timers.cancel(("dial", broker))
            self._state.effects.append(Undial(broker))

    def hang_up(self, broker: BrokerId) -> None:
        """Ends all links to a broker, to which there need be none."""
        assert broker not in self._wished, "a link that is wished for would be made again at once"
        self._state.effects += [Hangup(link) for link in self._links_of.get(broker, ())]

    def link_up(self, link: LinkId, broker: BrokerId) -> bool:
        """A link is there. Returns False if nobody wants one to that broker: then it is to be hung up on."""
        if broker not in self._wished and broker not in self._welcome:
            return False
        self._links[link] = broker
        self._stamps[link] = StampBook()
        self._links_of.setdefault(broker, {})[link] = None
        self._state.timers.cancel(("dial", broker))
        return True

    def link_down(self, link: LinkId) -> BrokerId | None:
        """A link is gone; without another one to that broker it is dialled again. Returns to whom it was."""
        broker = self._links.pop(link, None)
        if broker is None:
            return None
        del self._stamps[link]
        self._full.pop(link, None)
        self._full_until.pop(link, None)
        self._links_of[broker].pop(link)
        if not self._links_of[broker]:
            del self._links_of[broker]
            if broker in self._wished:
                self._state.timers.set(("dial", broker), self._state.spread(SECOND))
        return broker

    def room(self, link: LinkId, pending: int) -> BrokerId | None:
        """So many bytes wait on a link. Returns to whom it is, if it was full and is not any more."""
        if pending > LINK_HIGH and link in self._links:
            self._full[link] = None
        elif pending <= LINK_LOW and link in self._full:
            del self._full[link]
            self._full_until[link] = self._state.now
            return self._links[link]
        return None

    def dial(self, broker: BrokerId) -> None:
        """Dials a broker, and again as long as there is no link to it."""
        if broker not in self._links_of:
            self._state.effects.append(Dial(broker))
            self._state.timers.set(("dial", broker), self._state.now + REDIAL)

    def at(self, link: LinkId) -> BrokerId | None:
        """Returns who is at the end of a link."""
        return self._links.get(link)

    def link_to(self, broker: BrokerId) -> LinkId | None:
        """Returns the link that is used to a broker; None: there is none."""
        return next(reversed(self._links_of.get(broker, {})), None)

    def link_counts(self) -> dict[BrokerId, int]:
        """Returns how many links there are to each broker that there should be one to, or is one to."""
        return {broker: len(self._links_of.get(broker, ())) for broker in (*self._wished, *self._links_of)}

    # ----------------------------------------------------------------------------------------- room

    def is_full(self, broker: BrokerId) -> bool:
        """Whether so much waits on the link to a broker that nothing which can wait is sent there."""
        link = self.link_to(broker)
        return link is None or link in self._full

    def is_slow(self, broker: BrokerId) -> bool:
        """Whether the link to a broker is full, or was lately: then what was sent there may be long on its way."""
        link = self.link_to(broker)
        full_until = self._full_until.get(link) if link is not None else None
        return self.is_full(broker) or (full_until is not None and self._state.now - full_until < SLOW_LASTS)

    def said_now(self, broker: BrokerId) -> int:
        """Returns how many bytes that can wait were sent to a broker in this very instant."""
        link = self.link_to(broker)
        return 0 if link is None or self._said_at != self._state.now else self._said.get(link, 0)

    def take(self, link: LinkId, message: Message) -> Message | None:
        """A message has come on a link. Returns what it says to the router; None: nothing, it was about stamps."""
        book = self._stamps.get(link)
        if book is None:  # it was read when its link was gone
            return message.knowledge if isinstance(message, NamedKnowledge) else message
        if isinstance(message, NamedKnowledge):
            stamp = book.heard(message.name)
            if stamp is not None:
                return replace(message.knowledge, stamp=stamp)
            self._send(link, encode(StampQuestion(message.name)), urgent=True)
            return message.knowledge
        if isinstance(message, StampSaid):
            book.hear(message.stamp)
            return None
        if isinstance(message, StampQuestion):
            stamp = book.said(message.name)
            if stamp is not None:
                self._send(link, encode(StampSaid(dict(stamp))), urgent=True)
            return None
        return message

    # -------------------------------------------------------------------------------------- sending

    def send(self, broker: BrokerId, message: Message, address: Address = (), *, in_order: bool = False) -> None:
        """Sends a message to a broker that there is a link to; in pieces, if it is too much for a frame.

        `in_order`: it overtakes nothing that was sent before.
        """
        link = self.link_to(broker)
        if link is None or (link in self._full and isinstance(message, CAN_WAIT)):
            return
        urgent = not in_order and not isinstance(message, CAN_WAIT)
        for piece in self._pieces(link, message) if isinstance(message, Knowledge) else (message,):
            self._send(link, encode(piece, address), urgent=urgent)

    def _pieces(self, link: LinkId, knowledge: Knowledge) -> Iterator[Message]:
        """What is said of knowledge on a link: frames of bounded size, with a large stamp by its name."""
        stamp = knowledge.stamp
        if stamp is None or len(stamp) <= self._stamp_shbs:
            yield from pieces(knowledge)
            return
        name, is_new = self._stamps[link].say(stamp)
        if is_new:
            self._send(link, encode(StampSaid(dict(stamp))), urgent=False)
        for piece in pieces(knowledge):
            yield NamedKnowledge(piece, name)

    def _send(self, link: LinkId, frame: bytes, *, urgent: bool) -> None:
        self._state.effects.append(SendFrame(link, frame, urgent))
        if not urgent:
            self._count(link, len(frame))

    def _count(self, link: LinkId, size: int) -> None:
        if self._said_at != self._state.now:
            self._said_at = self._state.now
            self._said.clear()
        self._said[link] = self._said.get(link, 0) + size


@lru_cache(maxsize=65_536)
def rank(key: str, broker: BrokerId) -> int:
    """Returns how much a broker is to be preferred for a key: the same everywhere, and evenly spread (rendezvous)."""
    return int.from_bytes(blake2b(f"{key}\0{broker}".encode(), digest_size=8).digest(), "big")
