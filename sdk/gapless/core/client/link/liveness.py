"""Heartbeats: each side sends something in every interval; three intervals without a frame end the session.

Whoever is about to leave does not wait for three intervals: it asks for a sign of life, which a broker gives at once.
"""

from __future__ import annotations

from gapless.core.client.link.backoff import MILLISECOND, SECOND
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.link.registry import ClientTimer, Key
from gapless.core.deadlines import Deadlines
from gapless.core.wire.messages import AskStatus, Heartbeat

HEARTBEATS_MISSED = 3
STANDSTILL = 2 * SECOND
"""So long after it was asked for a sign of life, in nanoseconds, a broker that has given none stands still."""
NOBODYS_REQUEST = 0
"""The number of requests whose answer nobody waits for."""


class Liveness:
    """Both directions of one session. Its deadlines are set anew when they expire, not with every frame."""

    def __init__(self, outbox: ClientOutbox, deadlines: Deadlines[Key]) -> None:
        self.heard_at = 0
        """When the last frame arrived."""
        self._asked_at: int | None = None
        """When the broker was asked for a sign of life, if none has come since."""
        self._outbox = outbox
        self._deadlines = deadlines
        self._interval = 0

    def begin(self, heartbeat_ms: int) -> None:
        """A session is open; a frame has just arrived."""
        self._interval = heartbeat_ms * MILLISECOND
        now = self._outbox.now
        self._deadlines.set((ClientTimer.HEARTBEAT, 0), now + self._interval)
        self._deadlines.set((ClientTimer.SILENCE, 0), now + HEARTBEATS_MISSED * self._interval)

    def end(self) -> None:
        """The session is over."""
        self._deadlines.clear((ClientTimer.HEARTBEAT, 0))
        self._deadlines.clear((ClientTimer.SILENCE, 0))

    def on_heartbeat(self) -> None:
        """Sends a heartbeat, unless an ordinary frame was sent in the last interval.

        Ordinary frames count, because each of them would show the loss of an earlier one.
        """
        if self._outbox.sent_at + self._interval <= self._outbox.now:
            self._outbox.send_last(Heartbeat())
        self._deadlines.set((ClientTimer.HEARTBEAT, 0), self._outbox.sent_at + self._interval)

    def ask(self) -> None:
        """Asks for a sign of life, unless it was asked for and none has come. Without a session, one is waited for."""
        if self._asked_at is not None and self._asked_at > self.heard_at:
            return
        welcome = self._outbox.welcome
        if self._outbox.open:
            if welcome is None or AskStatus.__name__ not in welcome.answers:
                return  # it is too old to answer at once
            self._outbox.send(AskStatus(NOBODYS_REQUEST))
        self._asked_at = self._outbox.now

    @property
    def stands_still(self) -> bool:
        """Whether the broker was asked for a sign of life for so long that it stands still, or is not there."""
        asked = self._asked_at
        return asked is not None and asked > self.heard_at and self._outbox.now - asked >= STANDSTILL

    def on_silence(self) -> str:
        """Judges the link by the last frame that arrived. Returns why the link is dead, or "".

        If this process itself slept through the deadline, frames may wait unread in its socket. Then the silence proves
        nothing, and the link gets one more interval.
        """
        now = self._outbox.now
        due = self.heard_at + HEARTBEATS_MISSED * self._interval
        if due + self._interval <= now:
            due = now + self._interval
            self.heard_at = due - HEARTBEATS_MISSED * self._interval
        if due <= now:
            return f"nothing was heard for {HEARTBEATS_MISSED * self._interval / SECOND:g} s"
        self._deadlines.set((ClientTimer.SILENCE, 0), due)
        return ""
