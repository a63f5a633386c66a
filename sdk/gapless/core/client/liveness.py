"""Heartbeats: each side sends something in every interval; three intervals without a frame end the session."""

from __future__ import annotations

from gapless.core.client.backoff import MILLISECOND, SECOND
from gapless.core.client.outbox import ClientOutbox
from gapless.core.client.registry import ClientTimer, Key
from gapless.core.deadlines import Deadlines
from gapless.core.wire.messages import Heartbeat

HEARTBEATS_MISSED = 3


class Liveness:
    """Both directions of one session. Its deadlines are set anew when they expire, not with every frame."""

    def __init__(self, outbox: ClientOutbox, deadlines: Deadlines[Key]) -> None:
        self.heard_at = 0
        """When the last frame arrived."""
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
