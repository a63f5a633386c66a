"""One link to a client and its session: when frames came and went, and when the next deadline is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.server.handshake import Handshake
from gapless.core.server.limits import SessionLimits
from gapless.core.wire.numbering import Received

if TYPE_CHECKING:
    from gapless.core.ports import ClientSession
    from gapless.core.principals import PeerInfo
    from gapless.core.server.budgets import Budget
    from gapless.core.server.handshake import Admitted, Refused
    from gapless.core.server.reception import Reception
    from gapless.core.wire.messages import Challenge


class LinkSession:
    """A link, and its session once the client is admitted.

    How a client that does not read is found: the driver reports how many bytes wait on a link after each send, and
    there is at least one send per heartbeat. A report of fewer bytes than before, or none, is progress. If there is no
    progress for `SessionLimits.stall`, the client does not read.
    """

    __slots__ = (
        "asked",
        "behind",
        "budget",
        "client",
        "even_at",
        "expires",
        "handshake",
        "head",
        "heard",
        "instance_key",
        "is_gone",
        "late",
        "link",
        "moved",
        "opened",
        "paused",
        "peer",
        "pending",
        "postponed",
        "received",
        "reception",
        "said",
        "scheduled",
        "throttled",
    )

    def __init__(self, link: int, peer: PeerInfo, reception: Reception, now: int) -> None:
        self.link = link
        self.peer = peer
        self.reception = reception
        self.opened = now
        self.heard = now
        self.said = now
        """When something was last sent in the ordinary lane. Heartbeats go in that lane."""
        self.moved = now
        """When the link last made progress."""
        self.pending = 0
        self.paused = False
        """Whether it is not read because so much waits on it."""
        self.late: list[bytes] = []
        """What has arrived, and is taken in later turns: see `PORTION`."""
        self.behind = False
        """Whether it is not read because so much of that waits."""
        self.is_gone = False
        """Whether the link is over, and only what it has brought before is still to be taken in."""
        self.throttled = False
        """Whether it is not read because its principal has sent so much: until then, what has come is `late`."""
        self.even_at: int | None = None
        """When it is looked at whether its principal may send, or be sent, more; None: nothing waits for that."""
        self.budget: Budget | None = None
        """Of its principal, if there is a limit for that."""
        self.asked: int | None = None
        """A role wants to know when at most so many bytes wait; None: none does."""
        self.handshake = Handshake()
        self.postponed: tuple[int, Admitted | Challenge | Refused, int] | None = None
        """When the client hears what of its handshake, and how far wall time was ahead of ours then (milliseconds).

        None: the client has to say something.
        """
        self.expires: int | None = None
        """When the session is over unless it is renewed (monotonic nanoseconds)."""
        self.client: ClientSession | None = None
        self.head = b""
        """The bytes with which the frames of its session begin."""
        self.instance_key: tuple[str, str, str] = ("", "", "")
        self.received = Received()
        self.scheduled: int | None = None
        """When it is looked at next."""

    @property
    def is_read(self) -> bool:
        """Whether frames are taken from it. If not, nobody can blame the client for its silence."""
        return not (self.paused or self.behind or self.throttled)

    def on_pending(self, pending: int, now: int) -> None:
        """The driver reports how many bytes wait to leave on this link."""
        if pending < self.pending or not self.pending:
            self.moved = now
        self.pending = pending

    def due(self, limits: SessionLimits) -> int:
        """Returns when something has to be sent or judged."""
        if self.client is None:
            return self.opened + limits.handshake if self.postponed is None else self.postponed[0]
        due = self.said + limits.heartbeat
        if self.is_read:
            due = min(due, self.heard + limits.heartbeats_missed * limits.heartbeat)
        if self.pending:
            due = min(due, self.moved + limits.stall)
        if self.expires is not None:
            due = min(due, self.expires)
        return due

    def has_expired(self, now: int) -> bool:
        """Whether what the client has said of itself is over."""
        return self.expires is not None and now >= self.expires

    def lateness(self, limits: SessionLimits, now: int) -> str:
        """Returns why this connection has to end now; "" if it need not.

        While the link is not read, the client cannot be blamed for its silence; then only the stall counts.
        """
        if self.client is None:
            if self.postponed is not None or self.late:
                return ""
            late = now >= self.opened + limits.handshake
            return f"no {self.handshake.awaited} within {limits.handshake / 1e9:g} s" if late else ""
        if self.pending and now >= self.moved + limits.stall:
            return f"the client has not read anything for {limits.stall / 1e9:g} s"
        if self.has_expired(now):
            return "its credentials have expired"
        silence = limits.heartbeats_missed * limits.heartbeat
        if self.is_read and now >= self.heard + silence:
            return f"nothing was heard from the client for {silence / 1e9:g} s"
        return ""
