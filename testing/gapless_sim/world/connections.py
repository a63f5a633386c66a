"""A connection between two nodes, as a kernel gives it to their link cores: a stream in each direction.

What arrives is a prefix of what was sent, in order. What is sent on a way that is cut waits in a kernel, and goes on
when the way is free again, if the connection is still there. An end that closes is heard of behind what it has sent;
one whose machine lost its power says nothing, and whoever sends to it is told so when that machine runs again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from google_crc32c import extend as crc32c_extend

from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless.core.network.facts import LinkId
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.core_links import CoreNetwork

CLOSED: Final = None
"""What goes behind all payloads of an end that closes."""
DIAL_AGAIN: Final = SECOND
"""A kernel tries again to reach a machine that does not answer."""


class Connection:
    """One connection; its ends are numbered, 0 is the dialer's. Lists have what concerns the way towards each end."""

    def __init__(self, network: CoreNetwork, serial: int, dialer: SimBroker, listener: SimBroker) -> None:
        self.network = network
        self.world = network.world
        self.serial = serial
        self.ends = (dialer, listener)
        self.lives = (dialer.life, listener.life)
        self.life = network.world.new_life()
        """Over: nothing that is on its way arrives any more."""
        self.incarnations = [dialer.incarnation, 0]
        """Of the processes at the ends."""
        self.numbers: list[LinkId] = [0, 0]
        """As each end's core calls it; 0 until there is one."""
        self.gone = [False, True]
        """Which ends are not there: not yet, or not any more."""
        self.is_up = [False, False]
        """Which ends say that the link is up."""
        self.rates = [0, 0]
        """Bytes a second towards each end, 0 for no limit."""
        self.busy_until = [0, 0]
        self.pending = [0, 0]
        """How much the other end's core says waits there, towards each end."""
        self._last_arrival = [0, 0]
        self._held: tuple[deque[Sequence[bytes] | None], ...] = (deque(), deque())
        """What waits until the way is free."""
        self._arrived: tuple[deque[Sequence[bytes] | None], ...] = (deque(), deque())
        """What waits until the process there goes on."""

    @property
    def up(self) -> bool:
        """Whether both ends say so."""
        return self.is_up[0] and self.is_up[1]

    def way_to(self, index: int) -> tuple[str, str]:
        """The way towards an end: from whom, and to whom."""
        return self.ends[1 - index].name, self.ends[index].name

    # The dial.

    def dial(self) -> None:
        """Asks the listener, as soon as its machine can be reached."""
        if self.gone[0]:
            return
        world, network, listener = self.world, self.network, self.ends[1]
        if network.is_blocked(*self.way_to(0)) or network.is_blocked(*self.way_to(1)):
            world.after(DIAL_AGAIN, self.ends[0].name, "dial", self.dial, life=self.lives[0])
            return
        if not listener.listening:
            self._tell_closed(0, "connection refused")
            return
        self.lives = (self.lives[0], listener.life)
        self.incarnations[1] = listener.incarnation
        self.gone[1] = False
        self.ends[0].awake(self.network.on_connected, self)
        listener.awake(self.network.on_accepted, self)

    # What the ends do.

    def send(self, index: int, payloads: Sequence[bytes] | None) -> None:
        """Towards an end."""
        if self._held[index] or self.network.is_blocked(*self.way_to(index)):
            self._held[index].append(payloads)
        else:
            self._depart(index, payloads)

    def close(self, index: int) -> None:
        """This end closes: what it has sent still arrives."""
        if not self.gone[index]:
            self.gone[index] = True
            self.is_up[index] = False
            self.send(1 - index, CLOSED)
            self._forget()

    def vanish(self, index: int, *, silent: bool) -> None:
        """The process at this end is gone; silently, with its machine."""
        if silent:
            self.gone[index] = True
            self.is_up[index] = False
            self._forget()
        else:
            self.close(index)

    # What happens to it.

    def flush(self, index: int) -> None:
        """The way is free again."""
        held = self._held[index]
        while held and not self.life.over and not self.network.is_blocked(*self.way_to(index)):
            self._depart(index, held.popleft())

    def reset(self, reason: str) -> None:
        """It breaks: each end hears of it in its own time, and nothing on its way arrives."""
        if self.life.over:
            return
        self.life.over = True
        for index in (0, 1):
            if not self.gone[index]:
                self._tell_closed(index, reason, self.network.choices.draw(10) * 100 * MILLISECOND)
        self._forget()

    # How it is done.

    def _depart(self, index: int, payloads: Sequence[bytes] | None) -> None:
        world, rate, leave, digest = self.world, self.rates[index], self.world.now, 0
        if payloads is not None:
            for payload in payloads:
                digest = crc32c_extend(digest, payload)
            if rate:
                size = sum(map(len, payloads))
                leave = self.busy_until[index] = max(leave, self.busy_until[index]) + size * SECOND // rate
        arrival = self._last_arrival[index] = max(self._last_arrival[index], leave + self.network.latency())
        target = self.ends[index].name
        world.at(arrival, target, "payloads", self._arrive, index, payloads, life=self.life, digest=digest)

    def _arrive(self, index: int, payloads: Sequence[bytes] | None) -> None:
        if not self.gone[index]:
            self._arrived[index].append(payloads)
            if len(self._arrived[index]) == 1:
                self.ends[index].awake(self._take, index)
        elif payloads is not None and self.ends[index].running and not self.gone[1 - index]:
            self._tell_closed(1 - index, "connection reset by peer")  # nobody has that connection there

    def _take(self, index: int) -> None:
        """The process takes what has arrived."""
        arrived = self._arrived[index]
        while arrived and not self.gone[index]:
            payloads = arrived.popleft()
            if payloads is None:
                self._hear_closed(index, "")
            else:
                self.network.on_payloads(self, index, payloads)

    def _tell_closed(self, index: int, reason: str, after: int = 0) -> None:
        at = self.world.now + self.network.latency() + after
        self.world.at(at, self.ends[index].name, "closed", self._on_closed, index, reason, life=self.lives[index])

    def _on_closed(self, index: int, reason: str) -> None:
        self.ends[index].awake(self._hear_closed, index, reason)

    def _hear_closed(self, index: int, reason: str) -> None:
        if not self.gone[index]:
            self.gone[index] = True
            self.is_up[index] = False
            self._forget()
            self.network.on_closed(self, index, reason)

    def _forget(self) -> None:
        if all(self.gone):
            self.network.forget_connection(self)
