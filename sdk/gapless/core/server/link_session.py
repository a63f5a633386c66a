"""One link to a client and, once it is welcome, its session: when it was heard, and when it is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.server.handshake import Handshake
from gapless.core.server.limits import SessionLimits
from gapless.core.wire.numbering import Received

if TYPE_CHECKING:
    from gapless.core.ports import ClientSession


class LinkSession:
    """A link and its session.

    The driver reports what is pending on a link whenever it has sent something there, and that happens
    once per heartbeat at least. So a report that shows less than the one before, or nothing, is progress;
    no such report for `SessionLimits.stall` means that the client does not read.
    """

    __slots__ = (
        "client",
        "handshake",
        "heard",
        "instance_key",
        "link",
        "moved",
        "opened",
        "paused",
        "peer",
        "pending",
        "received",
        "said",
    )

    def __init__(self, link: int, peer: str, now: int) -> None:
        self.link = link
        self.peer = peer
        self.opened = now
        self.heard = now
        self.said = now
        """When something was last said in the ordinary lane, in which the heartbeats go."""
        self.moved = now
        """When the link was last seen to make progress."""
        self.pending = 0
        self.paused = False
        self.handshake = Handshake()
        self.client: ClientSession | None = None
        self.instance_key: tuple[str, str, str] = ("", "", "")
        self.received = Received()

    def on_pending(self, pending: int, now: int) -> None:
        """So many bytes have not left for this link."""
        if pending < self.pending or not self.pending:
            self.moved = now
        self.pending = pending

    def due(self, limits: SessionLimits) -> int:
        """When something will have to be done or judged."""
        if self.client is None:
            return self.opened + limits.handshake
        due = self.said + limits.heartbeat
        if not self.paused:
            due = min(due, self.heard + limits.heartbeats_missed * limits.heartbeat)
        if self.pending:
            due = min(due, self.moved + limits.stall)
        return due

    def lateness(self, limits: SessionLimits, now: int) -> str:
        """Why this connection has to end now; "" if it need not.

        While nothing is read from the link its silence is not the client's fault: the stall is judged.
        """
        if self.client is None:
            late = now >= self.opened + limits.handshake
            return f"no {self.handshake.awaited} within {limits.handshake / 1e9:g} s" if late else ""
        if self.pending and now >= self.moved + limits.stall:
            return f"the client has not read anything for {limits.stall / 1e9:g} s"
        silence = limits.heartbeats_missed * limits.heartbeat
        if not self.paused and now >= self.heard + silence:
            return f"nothing was heard from the client for {silence / 1e9:g} s"
        return ""
