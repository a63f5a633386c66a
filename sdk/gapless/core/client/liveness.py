"""Heartbeats: something is said at least every interval, and three silent ones end the session."""

from __future__ import annotations

from gapless.core.client.backoff import MILLISECOND, SECOND
from gapless.core.client.outbox import ClientOutbox
from gapless.core.client.registry import ClientTimer, Key
from gapless.core.deadlines import Deadlines
from gapless.core.wire.messages import Heartbeat

HEARTBEATS_MISSED = 3


class Liveness:
    """Both directions of one session. Its deadlines are set again when they come, not with every frame."""

    def __init__(self, outbox: ClientOutbox, deadlines: Deadlines[Key]) -> None:
        self.heard_at = 0
        """When something was last heard."""
        self._outbox = outbox
        self._deadlines = deadlines
        self._interval = 0

    def begin(self, heartbeat_ms: int) -> None:
        """A session is open; something was heard just now."""
        self._interval = heartbeat_ms * MILLISECOND
        now = self._outbox.now
        self._deadlines.set((ClientTimer.HEARTBEAT, 0), now + self._interval)
        self._deadlines.set((ClientTimer.SILENCE, 0), now + HEARTBEATS_MISSED * self._interval)

    def end(self) -> None:
        """The session is over."""
        self._deadlines.clear((ClientTimer.HEARTBEAT, 0))
        self._deadlines.clear((ClientTimer.SILENCE, 0))

    def on_heartbeat(self) -> None:
        """Says something, unless something was said that a lost frame would be noticed by."""
        if self._outbox.sent_at + self._interval <= self._outbox.now:
            self._outbox.send_last(Heartbeat())
        self._deadlines.set((ClientTimer.HEARTBEAT, 0), self._outbox.sent_at + self._interval)

    def on_silence(self) -> str:
        """Judges the link by what was heard; returns why it is dead, or "".

        A process that slept through its own deadline has not read what lies in its socket: silence that it
        could not have heard is no proof, so it listens for one more interval.
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
