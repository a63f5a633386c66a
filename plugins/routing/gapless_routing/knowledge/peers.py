"""Links to other brokers, what those can reach, and which of them to send to.

A broker is *blind* to a cell if it knows no way there. Each broker sends its neighbours a `RouterHello` on every change
and once a second, with the cells on its own side to which it is blind. A broker that was silent for three seconds is
blind to everything. A way may take one step sideways in each cell, over a cellmate, so cellmates are sent what a broker
reaches without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from gapless.core.foreign import reader_of
from gapless.core.network.facts import LINK_HIGH, LINK_LOW, BrokerId, Dial, LinkId, Pub, SendFrame
from gapless.core.network.frames import Address, InterestPart, Message, Private, encode, pieces
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.knowledge import Knowledge
from gapless_routing.knowledge.cells import Cell, Cells
from gapless_routing.knowledge.state import State

HELLO_EVERY: Final = 1 * SECOND
HELLO_LASTS: Final = 3 * SECOND
REDIAL: Final = 2 * SECOND
"""How long a dialled broker may take."""
SLOW_LASTS: Final = 10 * SECOND
"""A link that was full counts as slow for so long."""
HELLO: Final = 1
"""The kind of a `Private` that holds a RouterHello."""
CAN_WAIT: Final = (Knowledge, InterestPart, Pub)
"""What is not sent on a full link: it would only grow old there. Whoever misses it asks."""
SIDEWAYS: Final = "sideways"
"""What stands in front of a cell in the address of knowledge that a cellmate is to pass on to it."""


class RouterHello(Struct, array_like=True, frozen=True, gc=False):
    """What a broker can do for the one that it sends this to."""

    blind: tuple[Cell, ...]
    """The cells, away from the receiver, to which the sender knows no way."""
    synced: bool
    """Whether the sender knows what everybody behind it wants."""


_encode = msgspec.msgpack.Encoder().encode
_decode = reader_of(RouterHello, "a router's hello")


class Peers:
    """The other brokers that this one has links to, or should have."""

    def __init__(self, state: State, cells: Cells) -> None:
        self._state = state
        self._cells = cells
        self._links: dict[LinkId, BrokerId] = {}
        self._links_of: dict[BrokerId, dict[LinkId, None]] = {}
        self._full: dict[LinkId, None] = {}
        self._full_until: dict[LinkId, int] = {}
        """When a link was last full that is not full any more."""
        self._said: dict[LinkId, int] = {}
        """How many bytes that can wait were said on each link in this instant: the node has not reported them yet."""
        self._said_at = 0
        self._hellos: dict[BrokerId, tuple[RouterHello, int]] = {}
        self._sent_hellos: dict[BrokerId, RouterHello] = {}
        self._detours = 0
        self.synced = False
        """Whether this broker knows what everybody behind it wants; the interest says so."""

    def start(self) -> None:
        """Dials everybody."""
        for broker in self._wanted():
            self.dial(broker)
        self._state.timers.set(("hello",), self._state.now + HELLO_EVERY)

    # ---------------------------------------------------------------------------------------- links

    def link_up(self, link: LinkId, broker: BrokerId) -> bool:
        """A link is there. Returns False if nobody wants one to that broker."""
        if broker not in self._wanted():
            return False
        self._links[link] = broker
        self._links_of.setdefault(broker, {})[link] = None
        self._state.timers.cancel(("dial", broker))
        self._sent_hellos.pop(broker, None)
        self.say_hello()
        return True

    def link_down(self, link: LinkId) -> BrokerId | None:
        """A link is gone; without another one to that broker it is dialled again. Returns to whom it was."""
        broker = self._links.pop(link, None)
        if broker is None:
            return None
        self._full.pop(link, None)
        self._full_until.pop(link, None)
        self._links_of[broker].pop(link)
        if not self._links_of[broker]:
            del self._links_of[broker]
            self._hellos.pop(broker, None)
            self._state.timers.set(("dial", broker), self._state.spread(SECOND))
        self.say_hello()
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
        """Who is at the end of a link."""
        return self._links.get(link)

    def link_counts(self) -> dict[BrokerId, int]:
        """How many links there are to each broker that there should be one to."""
        return {broker: len(self._links_of.get(broker, ())) for broker in self._wanted()}

    def _wanted(self) -> list[BrokerId]:
        return [*self._cells.mates, *(broker for brokers in self._cells.linked.values() for broker in brokers)]

    # ----------------------------------------------------------------------------- who can reach what

    def live(self, cell: Cell) -> list[BrokerId]:
        """The brokers of a neighbouring cell, or the mates, to which there is a link."""
        brokers = self._cells.mates if cell == self._cells.own else self._cells.linked.get(cell, ())
        return [broker for broker in brokers if broker in self._links_of]

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
        """How many bytes that can wait were sent to a broker in this very instant."""
        link = self.link_to(broker)
        return 0 if link is None or self._said_at != self._state.now else self._said.get(link, 0)

    def is_blind(self, broker: BrokerId, cell: Cell) -> bool:
        """Whether a broker knows no way to a cell, as far as this one knows."""
        if self._cells.of(broker) == cell:
            return False
        said = self._hellos.get(broker)
        return said is None or self._state.now - said[1] > HELLO_LASTS or cell in said[0].blind

    def is_synced(self, broker: BrokerId) -> bool:
        """Whether a broker knows what everybody behind it wants."""
        said = self._hellos.get(broker)
        return said is not None and self._state.now - said[1] <= HELLO_LASTS and said[0].synced

    def say_hello(self, *, again: bool = False) -> None:
        """Sends hellos that say something new; `again`: all of them."""
        for broker in self._links_of:
            cell = self._cells.of(broker)
            hello = RouterHello(tuple(self._blind_for(cell)), self.synced)
            if again or self._sent_hellos.get(broker) != hello:
                self._sent_hellos[broker] = hello
                self.send(broker, Private(HELLO, _encode(hello)))

    def on_hello(self, broker: BrokerId, data: bytes) -> None:
        """A broker says what it can do. Raises RemoteProtocolError when it says nothing that makes sense."""
        before = self._hellos.get(broker)
        hello = _decode(data)
        self._hellos[broker] = (hello, self._state.now)
        if before is None or before[0].blind != hello.blind:
            self.say_hello()

    def beat(self) -> None:
        """Once a second: everybody hears of this broker again."""
        self._state.timers.set(("hello",), self._state.now + HELLO_EVERY)
        self.say_hello(again=True)

    def _blind_for(self, receiver: Cell | None) -> Iterable[Cell]:
        """To which cells, away from the receiver's, this broker knows no way; a mate is told of ways without mates."""
        own = self._cells.own
        for cell in self._cells.away_from(None if receiver == own else receiver):
            if not self._direct(cell) and (receiver == own or self._mate_toward(cell) is None):
                yield cell

    def _direct(self, cell: Cell) -> list[BrokerId]:
        """The neighbours on the way to a cell that know how to go on."""
        toward = self._cells.toward(cell)
        return [] if toward is None else [name for name in self.live(toward) if not self.is_blind(name, cell)]

    def _mates(self, cell: Cell) -> list[BrokerId]:
        """The mates that know a way to a cell."""
        return [mate for mate in self.live(self._cells.own) if not self.is_blind(mate, cell)]

    def _mate_toward(self, cell: Cell) -> BrokerId | None:
        """The mate that is asked to go on to a cell."""
        return max(self._mates(cell), key=lambda mate: rank(cell, mate), default=None)

    # -------------------------------------------------------------------------------------- sending

    def next_toward(self, cell: Cell, key: str, sender: BrokerId | None) -> BrokerId | None:
        """To whom to send on the way to a cell: a neighbour that knows it, else a mate, unless a mate sent it."""
        if self._leads_back(cell, sender):
            return None
        direct = self._direct(cell)
        if direct:
            return max(direct, key=lambda name: rank(key, name))
        return None if sender in self._cells.mates else self._mate_toward(cell)

    def send_toward(
        self, cell: Cell, key: str, message: Message, sender: BrokerId | None = None, address: Address = ()
    ) -> bool:
        """Sends a message one step on its way to a cell. Returns False if there is no way at present."""
        broker = self.next_toward(cell, key, sender)
        if broker is not None:
            self.send(broker, message, address)
        return broker is not None

    def has_way(self, to: BrokerId) -> bool:
        """Whether there is a way to a certain broker, as far as others say what they reach."""
        cell = self._cells.of(to)
        return to in self._links_of or (cell is not None and bool(self._direct(cell) or self._mates(cell)))

    def send_to(self, to: BrokerId, message: Message, sender: BrokerId | None, address: Address) -> None:
        """Sends a message one step on its way to a certain broker: to itself, where there is a link.

        Brokers say which cells they reach, and not which brokers of those. So a message to one of several takes another
        way each time, over a mate too: whoever sent it repeats it, and one of the ways leads to it.
        """
        cell = self._cells.of(to)
        if to in self._links_of:
            self.send(to, message, address)
        elif cell is not None and self._cells.is_alone(to):
            self.send_toward(cell, to, message, sender, address)
        elif cell is not None and not self._leads_back(cell, sender):
            self._detours += 1
            mates = () if sender in self._cells.mates else self._mates(cell)
            ways = [*self._direct(cell), *mates]
            if ways:
                self.send(max(ways, key=lambda name: rank(f"{to}/{self._detours}", name)), message, address)

    def _leads_back(self, cell: Cell, sender: BrokerId | None) -> bool:
        """Whether the way to a cell is the one that a message came: then it goes no further.

        Its sender has another map, in which that cell lies here, and would send it back at once, again and again.
        """
        toward = self._cells.toward(cell)
        return sender is not None and toward is not None and toward == self._cells.of(sender)

    def push(self, cell: Cell, knowledge: Knowledge) -> BrokerId | None:
        """Sends first-time knowledge to one broker of a neighbouring cell.

        Returns to whom; "" if every link there is full, and None if there is no way at present: then it is dropped, and
        whoever needs it will ask.
        """
        live = self.live(cell)
        if not live:
            mate = self._mate_toward(cell)
            if mate is not None and not self.is_full(mate):
                self.send(mate, knowledge, (SIDEWAYS, cell))
            return None
        ready = [name for name in live if not self.is_full(name)]
        if not ready:
            return ""
        behind = self._cells.behind(cell)
        best = max(ready, key=lambda name: (self._is_good(name, behind), rank(knowledge.pubend, name)))
        self.send(best, knowledge)
        return best

    def _is_good(self, broker: BrokerId, cells: tuple[Cell, ...]) -> bool:
        return self.is_synced(broker) and not any(self.is_blind(broker, cell) for cell in cells)

    def send(self, broker: BrokerId, message: Message, address: Address = (), *, in_order: bool = False) -> None:
        """Sends a message to a broker that there is a link to; in pieces, if it is too much for a frame.

        `in_order`: it overtakes nothing that was sent before.
        """
        link = self.link_to(broker)
        if link is None or (link in self._full and isinstance(message, CAN_WAIT)):
            return
        urgent = not in_order and not isinstance(message, CAN_WAIT)
        for piece in pieces(message) if isinstance(message, Knowledge) else (message,):
            frame = encode(piece, address)
            self._state.effects.append(SendFrame(link, frame, urgent))
            if not urgent:
                self._count(link, len(frame))

    def _count(self, link: LinkId, size: int) -> None:
        if self._said_at != self._state.now:
            self._said_at = self._state.now
            self._said.clear()
        self._said[link] = self._said.get(link, 0) + size

    def link_to(self, broker: BrokerId) -> LinkId | None:
        """The link that is used to a broker; None: there is none."""
        return next(reversed(self._links_of.get(broker, {})), None)


@lru_cache(maxsize=65_536)
def rank(key: str, broker: BrokerId) -> int:
    """How much a broker is to be preferred for a key: the same everywhere, and evenly spread (rendezvous hashing)."""
    return int.from_bytes(blake2b(f"{key}\0{broker}".encode(), digest_size=8).digest(), "big")
