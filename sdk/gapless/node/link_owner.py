"""Who hears a client's link for a machine, and hands it what the sessions want of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.server import LinkOutput
    from gapless.node.machine import Machine
    from gapless.spi import Link


class LinkOwner:
    """Hears a client's link, for one machine."""

    __slots__ = ("_machine", "_number", "link", "pending")

    def __init__(self, machine: Machine, number: int, link: Link) -> None:
        self._machine = machine
        self._number = number
        self.link = link
        self.pending = 0
        """What the sessions were last told."""

    # What the link says.

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Frames arrived."""
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
            link.send(work.urgent, urgent=True)
        if work.ordinary:
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
