"""The way to a certain broker: which live broker is the next step (protocol: delta-router).

A step may lead nowhere: a link can be broken between two brokers that live. Who has no further step says so to whom it
has the message from (`NO_WAY`), and is passed by for a while, where there is another step. The message itself is gone:
whoever sent it repeats it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from gapless.core.foreign import reader_of
from gapless.core.network.facts import BrokerId
from gapless.core.network.frames import Address, Message, Private
from gapless.core.network.timer_queue import SECOND
from gapless_routing.common.router_state import RouterState
from gapless_routing.delta.ring import Ring
from gapless_routing.delta.tree import Tree

NO_WAY: Final = 15
"""The kind of a `Private` that holds a NoWay."""
PASSED_BY: Final = 3 * SECOND


class NoWay(Struct, array_like=True, frozen=True, gc=False):
    """Its sender has no live link on the way to a broker."""

    to: BrokerId


_encode = msgspec.msgpack.Encoder().encode
_decode = reader_of(NoWay, "a way")


class Ways:
    """The next step to each broker."""

    def __init__(self, state: RouterState, tree: Tree, ring: Ring) -> None:
        self._state = state
        self._tree = tree
        self._ring = ring
        self._closed: dict[tuple[BrokerId, BrokerId], int] = {}
        """Which step leads to which broker nowhere, and since when."""

    def _open(self, steps: list[BrokerId], to: BrokerId) -> list[BrokerId]:
        """Returns those that have not said lately that they lead nowhere."""
        recent = self._state.now - PASSED_BY
        return [step for step in steps if self._closed.get((step, to), recent) <= recent]

    def send(self, to: BrokerId, message: Message, sender: BrokerId | None, address: Address) -> None:
        """Sends a message one step on its way to a certain broker.

        Where several brokers on the way are live, a nearer one has been bypassed, or is about to be: so it goes to the
        farthest mostly, and now and then to any of them. Whoever sent it repeats it, and one of the ways leads there.
        Not in turns: what is repeated in step with them would take the same way for ever.
        """
        if to not in self._tree or to == self._state.broker:
            return
        if sender is not None and self._tree.first(to) == self._tree.first(sender):
            return  # two brokers with different maps would send it to and fro
        live = self._ring.on_way(to)
        steps = self._open(live, to)
        if not steps and sender is not None:
            self._ring.links.send(sender, Private(NO_WAY, _encode(NoWay(to))))
        if steps := steps or live:  # a closed one may lead there again since it said so
            step = steps[-1] if self._state.draw(4) else steps[self._state.draw(len(steps))]
            self._ring.links.send(step, message, address)

    def on_no_way(self, broker: BrokerId, data: bytes) -> None:
        """A broker leads nowhere. Raises RemoteProtocolError when it makes no sense."""
        to = _decode(data).to
        if to in self._tree:
            self._closed[broker, to] = self._state.now
