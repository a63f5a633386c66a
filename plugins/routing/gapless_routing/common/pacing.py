"""Interests a little at a time: what is large is read, and said, in so many turns that none of them takes long.

Whatever waits is taken in the order in which it came, so that a change is never taken before the whole that it builds
on. A turn of the node is known by its time: all that happens in one turn happens at one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from gapless.core.network.facts import BrokerId, Interest, LinkId
from gapless.core.network.frames import InterestPart
from gapless.core.network.timer_queue import MILLISECOND
from gapless.core.stream.ticks import ShbId
from gapless_routing.common.interest import parts_in_turn
from gapless_routing.common.router_state import RouterState, Sender

NEXT_TURN: Final = 1 * MILLISECOND


class Intake:
    """Interests that have come and are to be read."""

    def __init__(
        self,
        state: RouterState,
        turn_bytes: int,
        turn_subscriptions: int,
        read: Callable[[LinkId, BrokerId, bytes], None],
    ) -> None:
        """`read` takes a frame that came on a link, from a broker.

        `turn_bytes`: so much is read in one turn. An interest with more than `turn_subscriptions` is large.
        """
        self._state = state
        self._turn_bytes = turn_bytes
        self._turn_subscriptions = turn_subscriptions
        self._read = read
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()
        """How many bytes a step is, and what it does; it returns whether there is another one like it to do."""
        self._at = self._read_now = 0

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    def take_frame(self, link: LinkId, broker: BrokerId, frame: bytes) -> None:
        """A frame with a part of an interest."""

        def step() -> bool:
            self._read(link, broker, frame)
            return False

        self._waiting.append((len(frame), step))
        self.go_on()

    def take_own(
        self, interest: Interest, prepare: Callable[[InterestPart], None], take: Callable[[Interest], None]
    ) -> None:
        """An interest of this broker's own SHB: a large one is prepared in parts before it is taken."""
        large = len(interest.add) > self._turn_subscriptions
        parts = parts_in_turn(interest, self._turn_bytes) if large else iter(())

        def step() -> bool:
            part = next(parts, None)
            if part is None:
                take(interest)
            else:
                prepare(part)
            return part is not None

        self._waiting.append((self._turn_bytes if large else 0, step))
        self.go_on()

    def go_on(self) -> None:
        """Reads as much as there is time for in this turn."""
        if self._at != self._state.now:
            self._at, self._read_now = self._state.now, 0
        while self._waiting and self._read_now < self._turn_bytes:
            size, step = self._waiting.popleft()
            self._read_now += size
            if step():
                self._waiting.appendleft((size, step))
        if self._waiting:
            self._state.timers.set(("intake",), self._state.now + NEXT_TURN)


class Saying:
    """An interest on its way to a broker."""

    __slots__ = ("address", "full", "parts", "shb")

    def __init__(self, interest: Interest, part_bytes: int, address: Callable[[], tuple[int, str, str]]) -> None:
        """`address` is asked for with each part."""
        self.shb = interest.shb
        self.full = interest.full
        self.parts: Iterator[InterestPart] = parts_in_turn(interest, part_bytes)
        self.address = address


class Sayings:
    """Interests that are to be said to other brokers."""

    def __init__(self, state: RouterState, sender: Sender, turn_subscriptions: int) -> None:
        """`turn_subscriptions`: the interest of so many is said to a broker in one turn."""
        self._state = state
        self._sender = sender
        self._turn_subscriptions = turn_subscriptions
        self._waiting: dict[BrokerId, deque[Saying]] = {}
        self._at = 0
        self._said_now: dict[BrokerId, int] = {}

    def says_whole(self, broker: BrokerId, shb: ShbId) -> bool:
        """Whether a broker is being told the whole interest of an SHB."""
        return any(saying.full and saying.shb == shb for saying in self._waiting.get(broker, ()))

    def say(self, broker: BrokerId, saying: Saying) -> None:
        """Says it, after what was said to that broker before; not on a full link: whoever misses it asks."""
        if not self._sender.is_full(broker):
            self._waiting.setdefault(broker, deque()).append(saying)
            self._say_to(broker)

    def go_on(self) -> None:
        """Says as much as there is time for in this turn."""
        for broker in list(self._waiting):
            self._say_to(broker)

    def link_down(self, broker: BrokerId) -> None:
        """A link to a broker is gone: what is said on another one begins anew, when that broker asks."""
        self._waiting.pop(broker, None)

    def _say_to(self, broker: BrokerId) -> None:
        if self._at != self._state.now:
            self._at = self._state.now
            self._said_now.clear()
        waiting, said = self._waiting[broker], self._said_now.get(broker, 0)
        most = self._turn_subscriptions
        while waiting and said < most and not self._sender.is_full(broker):
            part = next(waiting[0].parts, None)
            if part is None:
                waiting.popleft()
                continue
            self._sender.send(broker, part, waiting[0].address())
            is_whole = part.start == 0 and part.end is None
            said += 1 + len(part.add) + len(part.drop) if is_whole else most
            if part.end is None:
                waiting.popleft()
        self._said_now[broker] = said
        if waiting:
            self._state.timers.set(("sayings",), self._state.now + NEXT_TURN)
        else:
            del self._waiting[broker]
