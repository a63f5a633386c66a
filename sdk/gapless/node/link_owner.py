"""Who hears a client's link for a machine, and hands it what the sessions want of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.gauges import Family

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gapless.core.gauges import Gauge
    from gapless.core.server import LinkOutput
    from gapless.core.server.outbox import Payload
    from gapless.node.machine import Machine
    from gapless.spi import Link


FRAMES = Family(
    "gapless_node_frames_total",
    "Frames that came from clients, and that were sent to them.",
    ("direction",),
    counter=True,
)
BYTES = Family(
    "gapless_node_bytes_total",
    "The size of these frames, without what the transport adds.",
    ("direction",),
    counter=True,
)


class Traffic:
    """What has passed the links of all clients, counted by what arrives, and leaves, at once."""

    __slots__ = ("bytes_in", "bytes_out", "frames_in", "frames_out")

    def __init__(self) -> None:
        self.frames_in = self.bytes_in = self.frames_out = self.bytes_out = 0

    def on_out(self, payloads: Sequence[Payload]) -> None:
        """These were sent."""
        self.frames_out += len(payloads)
        for payload in payloads:
            self.bytes_out += len(payload) if isinstance(payload, bytes) else len(payload[0]) + len(payload[1])

    def gauges(self) -> Iterator[Gauge]:
        """Yields all of it."""
        yield FRAMES.gauge(self.frames_in, "in")
        yield FRAMES.gauge(self.frames_out, "out")
        yield BYTES.gauge(self.bytes_in, "in")
        yield BYTES.gauge(self.bytes_out, "out")


class LinkOwner:
    """Hears a client's link, for one machine."""

    __slots__ = ("_machine", "_number", "_traffic", "link", "pending")

    def __init__(self, machine: Machine, number: int, link: Link) -> None:
        self._machine = machine
        self._traffic = machine.traffic
        self._number = number
        self.link = link
        self.pending = 0
        """What the sessions were last told."""

    # What the link says.

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Frames arrived."""
        traffic = self._traffic
        traffic.frames_in += len(payloads)
        traffic.bytes_in += sum(map(len, payloads))
        self._machine.on_frames(self._number, payloads)

    def on_broken(self, reason: str) -> None:
        """What came breaks the framing, or is too much."""
        self._machine.on_broken(self._number, reason)

    def on_drained(self) -> None:
        """Much had been pending, and now little is."""
        self._machine.on_drained(self._number)

    def on_closed(self, reason: str) -> None:
        """The link is over."""
        self._machine.on_closed(self._number)

    # What the sessions want of it.

    def serve(self, work: LinkOutput, now: int) -> None:
        """Carries out what a turn wants of the link, and tells the sessions how much waits on it since."""
        link = self.link
        if self.pending and not work.reports:
            # What has left since the last send is reported before the next one, or a link on which there is always
            # the same little message under way would look as if nothing ever left. But who asks for room means the
            # room that there is behind this send.
            self._report(now)
        if work.limit:
            link.raise_limit(work.limit)
        if work.urgent:
            self._traffic.on_out(work.urgent)
            link.send(work.urgent, urgent=True)
        if work.ordinary:
            self._traffic.on_out(work.ordinary)
            link.send(work.ordinary)
        if work.paused is not None:
            (link.pause if work.paused else link.resume)()
        if work.close is not None:
            link.close(work.close)
            return
        if link.pending or self.pending or work.reports:
            self._report(now)

    def _report(self, now: int) -> None:
        self.pending = self.link.pending
        self._machine.sessions.on_pending(self._number, self.pending, now)
