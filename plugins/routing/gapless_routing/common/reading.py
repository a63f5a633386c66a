"""Reading what other brokers send: a frame is decoded, checked, and given to whoever takes its kind of message.

A broker that sends nonsense is hung up on, and the operator is told: once a minute of each, because a neighbour that
comes back at once and does it again should fill no log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from gapless.core.alarms import AlarmCode
from gapless.core.network.facts import BrokerId, Hangup, Held, Hold, LinkId, OpenRequest, Posted, Pub
from gapless.core.network.frames import Address, Answer, InterestPart, NamedKnowledge, decode
from gapless.core.network.reach import MetaOf, blame, check_message
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER
from gapless.errors import RemoteProtocolError
from gapless_routing.common.link_table import LinkTable
from gapless_routing.common.router_state import RouterState

BLAME_EVERY: Final = 60 * SECOND

AddressKinds: TypeAlias = "Mapping[type, tuple[tuple[type, ...], ...]]"
"""Of a kind of message: the types of the parts that its address may have."""
_INTS = (int,) * 5
ADDRESSES: Final[AddressKinds] = {
    Knowledge: ((), (int,)),
    InterestPart: ((int, str, str),),
    Hold: ((str,),),
    Held: ((str,),),
    Posted: ((str,),),
    OpenRequest: ((str, str, *_INTS),),
    Pub: ((str, str, *_INTS),),
    Answer: ((str, str, *_INTS[:4]),),
}
"""What the parts that all routers share write on the envelope of a message; they write nothing on any other."""


class Reader:
    """Reads the frames of other brokers."""

    def __init__(
        self,
        state: RouterState,
        links: LinkTable,
        meta_of: MetaOf,
        handlers: Mapping[type, Callable[[BrokerId, Any, Address], None]],
        addresses: AddressKinds = ADDRESSES,
    ) -> None:
        """`handlers`: who takes each kind of message. `addresses`: of what its address may be; of no other: nothing."""
        self._state = state
        self._links = links
        self._meta_of = meta_of
        self._handlers = handlers
        self._addresses = addresses
        self._blamed: dict[tuple[BrokerId, AlarmCode], int] = {}
        """When the operator is to be told again of a neighbour that says what cannot be."""

    def read(self, link: LinkId, peer: BrokerId, frame: bytes) -> None:
        """Reads what a broker sent on a link that may be gone by now."""
        try:
            message, address = decode(frame)
            kind = Knowledge if type(message) is NamedKnowledge else type(message)
            if tuple(map(type, address)) not in self._addresses.get(kind, ((),)):
                raise RemoteProtocolError("an address that no router writes")
            if any(not 0 <= part <= FOREVER for part in address if isinstance(part, int)):
                raise RemoteProtocolError("a number in an address that no router has")
            heard = self._links.take(link, message)
            if heard is None:
                return
            handle = self._handlers.get(type(heard))
            if handle is None:
                raise RemoteProtocolError("a message that this router does not know")
            check_message(heard, self._meta_of, self._state.wall)
            handle(peer, heard, address)
        except RemoteProtocolError as error:
            if self._links.at(link) is not None:
                self._blame(peer, error)
                self._state.effects.append(Hangup(link))

    def refuse(self, peer: BrokerId, error: RemoteProtocolError) -> None:
        """What a broker sent made no sense, as was found out later: it is hung up on."""
        self._blame(peer, error)
        link = self._links.link_to(peer)
        if link is not None:
            self._state.effects.append(Hangup(link))

    def _blame(self, peer: BrokerId, error: RemoteProtocolError) -> None:
        alarm = blame(peer, error)
        key = alarm.about, alarm.code
        if self._state.now >= self._blamed.get(key, self._state.now):
            self._blamed[key] = self._state.now + BLAME_EVERY
            self._state.effects.append(alarm)
