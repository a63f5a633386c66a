"""A node's links to other nodes on the event loop: their core, with the transport, and one timer.

They live as long as the machine that they feed: another machine is another process to a peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gapless import loggers
from gapless.core.alarms import Alarm
from gapless.core.network.facts import (
    BrokerId,
    Dial,
    Hangup,
    LinkDown,
    LinkId,
    LinkUp,
    RanTwice,
    SendFrame,
    ShutOut,
    Undial,
)
from gapless.core.network.links import Connect, EndLink, RaiseFrameLimit, Received, SendPayloads, Waiting

if TYPE_CHECKING:
    from gapless.core.gauges import Gauge
    from gapless.core.network.peers import BrokerLinks
    from gapless.node.machine import Machine, Network
    from gapless.spi import Link, LinkHandler, Transport

log = loggers.logger("gapless.node")

TIMER_GRAIN = 0.001
"""Seconds: a deadline that has passed is kept this soon."""


class LinksShell(Protocol):
    """Who owns them."""

    machine: Machine

    @property
    def clock(self) -> Callable[[], tuple[int, int]]:
        """Tells monotonic nanoseconds, and milliseconds since 1970."""

    def alarm(self, alarm: Alarm) -> None:
        """Tell the operator."""

    def on_shut_out(self, shut_out: ShutOut) -> None:
        """A later process of this node counts: nothing more may be promised to anybody."""


class NodeLinks:
    """The links of one machine. What the core says to the router becomes the machine's next turn."""

    def __init__(
        self, core: BrokerLinks, transport: Transport, shell: LinksShell, neighbours: Sequence[BrokerId]
    ) -> None:
        """`neighbours`: to whom the map wants links."""
        self._loop = asyncio.get_running_loop()
        self._core = core
        self._neighbours = neighbours
        self._transport = transport
        self._shell = shell
        self._links: dict[LinkId, Link] = {}
        self._dials: dict[LinkId, asyncio.Task[None]] = {}
        self._count_up = 0
        """How many links are up."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._over = False
        self._settled = asyncio.Event()
        machine = shell.machine
        self._act: dict[type, Callable[[Any], None]] = {
            Connect: self._connect,
            SendPayloads: self._send,
            RaiseFrameLimit: self._raise_limit,
            EndLink: self._close,
            Waiting: lambda effect: machine.on_broker_pending(effect.link, effect.pending),
            LinkUp: self._up,
            LinkDown: self._down,
            Received: lambda effect: machine.on_broker_frame(effect.link, effect.frame),
            RanTwice: machine.on_ran_twice,
            ShutOut: shell.on_shut_out,
            Alarm: shell.alarm,
        }

    def gauges(self) -> Iterator[Gauge]:
        """Which nodes there are links to, and what waits there."""
        return self._core.gauges()

    @property
    def are_none(self) -> bool:
        """Whether no link to another node is up."""
        return not self._count_up

    # What the router wants: carried out by the next `flush`.

    def to_network(self, effect: Network) -> None:
        """Something of the router."""
        now = self._now()
        if isinstance(effect, SendFrame):
            self._core.on_send(effect.link, effect.frame, urgent=effect.urgent, now=now)
        elif isinstance(effect, Dial):
            self._core.on_dial(effect.peer, now)
        elif isinstance(effect, Undial):
            self._core.on_undial(effect.peer, now)
        else:
            assert isinstance(effect, Hangup)
            self._core.on_hangup(effect.link, now)

    def flush(self) -> None:
        """Does what the core asks for: after each turn of the machine, and after whatever happens on a link."""
        if not self._over:
            try:
                self._flush()
            except Exception as error:  # noqa: BLE001 - as in `_happened`
                self._shell.machine.fail(error)

    def _flush(self) -> None:
        while effects := self._core.take_effects():
            for effect in effects:
                self._act[type(effect)](effect)
        if self._core.is_settled:
            self._settled.set()
        due = self._core.deadline()
        if due is not None and (self._timer is None or due < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self._loop.call_later(max((due - self._now()) / 1e9, TIMER_GRAIN), self._on_timer)

    # What happens.

    def accept(self, link: Link) -> LinkHandler:
        """Somebody has connected to the nodes' address."""
        number = self._core.on_accepted(link.peer, link.certificate.common_name, self._now())
        self._loop.call_soon(self.flush)
        if number is None:
            self._loop.call_soon(link.close, "too many are on their way in")
            return NodeLink(self, 0)
        self._links[number] = link
        return NodeLink(self, number)

    def on_payloads(self, number: LinkId, payloads: Sequence[bytes]) -> None:
        """Frames of the transport arrived."""
        self._happened(self._core.on_payloads, number, payloads)

    def on_broken(self, number: LinkId, reason: str) -> None:
        """What came breaks the framing, or is too much."""
        self._happened(self._core.on_broken, number, reason)

    def on_closed(self, number: LinkId, reason: str) -> None:
        """The transport's link is over."""
        self._links.pop(number, None)
        self._happened(self._core.on_closed, number, reason)

    def _happened(self, take: Callable[..., None], *arguments: Any) -> None:
        """A bug in the core ends the machine, as one in any other core does: it may be in any state."""
        if self._over:
            return
        try:
            take(*arguments, self._now())
            self._flush()
        except Exception as error:  # noqa: BLE001 - whatever it is, these links cannot go on
            self._shell.machine.fail(error)

    async def ask_neighbours(self) -> None:
        """Waits until the neighbours on the map have taken this process, or cannot be reached.

        Before, one of them may still be finding out whether another process of this node runs.
        """
        self._settled.clear()
        for peer in self._neighbours:
            self._core.on_dial(peer, self._now())
        self.flush()
        await self._settled.wait()

    # The end.

    def close(self, reason: str) -> None:
        """Ends all links in order; nothing happens any more."""
        self._core.close(reason, self._now())
        self.flush()
        self._over = True
        self._settled.set()
        if self._timer is not None:
            self._timer.cancel()
        for dial in self._dials.values():
            dial.cancel()

    async def closed(self) -> None:
        """Waits until nobody is being dialed any more."""
        if self._dials:
            await asyncio.wait(list(self._dials.values()))

    # How it is done.

    def _now(self) -> int:
        return self._shell.clock()[0]

    def _on_timer(self) -> None:
        self._timer = None
        self._happened(self._core.on_deadline)

    def _connect(self, connect: Connect) -> None:
        task = self._dials[connect.link] = self._loop.create_task(self._dial(connect))
        task.add_done_callback(lambda _: self._dials.pop(connect.link, None))

    async def _dial(self, connect: Connect) -> None:
        try:
            await self._transport.dial(connect.address, partial(self._dialed, connect.link))
        except Exception as error:  # noqa: BLE001 - whatever a transport raises, it is this dial that failed
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            self._happened(self._core.on_closed, connect.link, reason)

    def _dialed(self, number: LinkId, link: Link) -> LinkHandler:
        if self._over or not self._core.on_connected(number, link.certificate.common_name, self._now()):
            self._loop.call_soon(link.close, "nobody waits for it any more")
            return NodeLink(self, 0)
        self._links[number] = link
        self._loop.call_soon(self.flush)
        return NodeLink(self, number)

    def _send(self, effect: SendPayloads) -> None:
        link = self._links.get(effect.link)
        if link is not None:
            link.send(effect.payloads, urgent=effect.urgent)

    def _raise_limit(self, effect: RaiseFrameLimit) -> None:
        link = self._links.get(effect.link)
        if link is not None:
            link.raise_limit(effect.limit)

    def _close(self, effect: EndLink) -> None:
        dial, link = self._dials.get(effect.link), self._links.pop(effect.link, None)
        if link is not None:
            link.close(effect.reason)
        elif dial is not None:
            dial.cancel()

    def _up(self, up: LinkUp) -> None:
        self._count_up += 1
        log.info("link %d to node %r is up", up.link, up.peer)
        self._shell.machine.on_broker_link(up.link, up.peer, up.roles, up.incarnation)

    def _down(self, down: LinkDown) -> None:
        self._count_up -= 1
        log.info("link %d is down", down.link)
        self._shell.machine.on_broker_link_closed(down.link)


class NodeLink:
    """Hears a transport's link, for one number."""

    __slots__ = ("_links", "_number")

    def __init__(self, links: NodeLinks, number: LinkId) -> None:
        """`number`: 0 for a link that nobody wants."""
        self._links = links
        self._number = number

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Frames arrived."""
        self._links.on_payloads(self._number, payloads)

    def on_broken(self, reason: str) -> None:
        """What came breaks the framing, or is too much."""
        self._links.on_broken(self._number, reason)

    def on_drained(self) -> None:
        """What waits is counted by what the peer says."""

    def on_closed(self, reason: str) -> None:
        """The link is over."""
        self._links.on_closed(self._number, reason)
