"""Links to other brokers, what those can reach, and which of them to send to.

A broker is *blind* to a cell if it knows no way there. Each broker sends its neighbours a `RouterHello` on every change
and once a second, with the cells on its own side to which it is blind. A broker that was silent for three seconds is
blind to everything. A way may take one step sideways in each cell, over a cellmate, so cellmates are sent what a broker
reaches without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from gapless.core.foreign import reader_of
from gapless.core.network.facts import BrokerId, LinkId
from gapless.core.network.frames import Address, Message, Private
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.knowledge import Knowledge
from gapless_routing.common.link_table import STAMP_SHBS, LinkTable, rank
from gapless_routing.common.relay import ALL_FULL
from gapless_routing.common.router_state import RouterState
from gapless_routing.knowledge.cells import Cell, Cells

HELLO_EVERY: Final = 1 * SECOND
HELLO_LASTS: Final = 3 * SECOND
HELLO: Final = 1
"""The kind of a `Private` that holds a RouterHello."""
SIDEWAYS: Final = "sideways"
"""What stands, behind its slack and in front of a cell, in the address of knowledge that a cellmate is to pass on."""


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

    def __init__(self, state: RouterState, cells: Cells, stamp_shbs: int = STAMP_SHBS) -> None:
        self._state = state
        self._cells = cells
        linked = (broker for brokers in cells.linked.values() for broker in brokers)
        self.links = LinkTable(state, (*cells.mates, *linked), stamp_shbs)
        self._hellos: dict[BrokerId, tuple[RouterHello, int]] = {}
        self._sent_hellos: dict[BrokerId, RouterHello] = {}
        self._detours = 0
        self.synced = False
        """Whether this broker knows what everybody behind it wants; the interest says so."""

    def start(self) -> None:
        """Dials everybody."""
        self.links.start()
        self._state.timers.set(("hello",), self._state.now + HELLO_EVERY)

    def link_up(self, link: LinkId, broker: BrokerId) -> bool:
        """A link is there. Returns False if nobody wants one to that broker."""
        if not self.links.link_up(link, broker):
            return False
        self._sent_hellos.pop(broker, None)
        self.say_hello()
        return True

    def link_down(self, link: LinkId) -> BrokerId | None:
        """A link is gone. Returns to whom it was."""
        broker = self.links.link_down(link)
        if broker is not None:
            if broker not in self.links:
                self._hellos.pop(broker, None)
            self.say_hello()
        return broker

    # ----------------------------------------------------------------------------- who can reach what

    def live(self, cell: Cell) -> list[BrokerId]:
        """The brokers of a neighbouring cell, or the mates, to which there is a link."""
        brokers = self._cells.mates if cell == self._cells.own else self._cells.linked.get(cell, ())
        return [broker for broker in brokers if broker in self.links]

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
        for broker in self.links:
            cell = self._cells.of(broker)
            hello = RouterHello(tuple(self._blind_for(cell)), self.synced)
            if again or self._sent_hellos.get(broker) != hello:
                self._sent_hellos[broker] = hello
                self.links.send(broker, Private(HELLO, _encode(hello)))

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

    def with_role(self, role: str) -> list[BrokerId]:
        """The brokers that have a role, in an order that is the same everywhere."""
        return self._cells.with_role(role)

    def is_known(self, broker: BrokerId) -> bool:
        """Whether a broker is on the map."""
        return self._cells.of(broker) is not None

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
            self.links.send(broker, message, address)
        return broker is not None

    def has_way(self, to: BrokerId) -> bool:
        """Whether there is a way to a certain broker, as far as others say what they reach."""
        cell = self._cells.of(to)
        return to in self.links or (cell is not None and bool(self._direct(cell) or self._mates(cell)))

    def send_to(self, to: BrokerId, message: Message, sender: BrokerId | None, address: Address) -> None:
        """Sends a message one step on its way to a certain broker: to itself, where there is a link.

        Brokers say which cells they reach, and not which brokers of those. So a message to one of several takes another
        way each time, over a mate too: whoever sent it repeats it, and one of the ways leads to it.
        """
        cell = self._cells.of(to)
        if to in self.links:
            self.links.send(to, message, address)
        elif cell is not None and self._cells.is_alone(to):
            self.send_toward(cell, to, message, sender, address)
        elif cell is not None and not self._leads_back(cell, sender):
            self._detours += 1
            mates = () if sender in self._cells.mates else self._mates(cell)
            ways = [*self._direct(cell), *mates]
            if ways:
                self.links.send(max(ways, key=lambda name: rank(f"{to}/{self._detours}", name)), message, address)

    def _leads_back(self, cell: Cell, sender: BrokerId | None) -> bool:
        """Whether the way to a cell is the one that a message came: then it goes no further.

        Its sender has another map, in which that cell lies here, and would send it back at once, again and again.
        """
        toward = self._cells.toward(cell)
        return sender is not None and toward is not None and toward == self._cells.of(sender)

    def push(self, cell: Cell, knowledge: Knowledge, slack: int) -> BrokerId | None:
        """Sends first-time knowledge to one broker of a neighbouring cell.

        Returns to whom; ALL_FULL if every link there is; None if there is no way at present: then it is dropped, and
        whoever needs it will ask.
        """
        live = self.live(cell)
        if not live:
            mate = self._mate_toward(cell)
            if mate is not None and not self.links.is_full(mate):
                self.links.send(mate, knowledge, (slack // MILLISECOND, SIDEWAYS, cell))
            return None
        ready = [name for name in live if not self.links.is_full(name)]
        if not ready:
            return ALL_FULL
        behind = self._cells.behind(cell)
        best = max(ready, key=lambda name: (self._is_good(name, behind), rank(knowledge.pubend, name)))
        self.links.send(best, knowledge, (slack // MILLISECOND,) if slack else ())
        return best

    def _is_good(self, broker: BrokerId, cells: tuple[Cell, ...]) -> bool:
        return self.is_synced(broker) and not any(self.is_blind(broker, cell) for cell in cells)
