"""What a step wants done, in order, with the frames of one step joined into as few sends as possible."""

from __future__ import annotations

from gapless.core.client.effects import Effect, Payload, SendFrames
from gapless.core.codec import encode, encode_keyed, encode_publish
from gapless.core.messages import ClientMessage, Publish, PublishKeyed


class Outbox:
    """Gathers effects. Knows the link and the session, so that whoever sends need not.

    Control messages are urgent: on a slow link they overtake events that have not left. Nothing is sent
    without a session, and whoever wants to send asks `open` first.
    """

    def __init__(self) -> None:
        self.link = 0
        self.session = 0
        self.sent_at = 0
        """When something was last sent, by `now`."""
        self.now = 0
        self._effects: list[Effect] = []
        self._urgent: SendFrames | None = None
        self._ordinary: SendFrames | None = None

    @property
    def open(self) -> bool:
        """Whether there is a session."""
        return self.session != 0

    def emit(self, effect: Effect) -> None:
        """Adds an effect. What is sent later is sent after it."""
        self._urgent = self._ordinary = None
        self._effects.append(effect)

    def tell(self, effect: Effect) -> None:
        """Adds an effect whose place among the sends means nothing."""
        self._effects.append(effect)

    def send(self, message: ClientMessage | PublishKeyed) -> None:
        """Sends a control message; or a keyed batch, which is a question as well."""
        if isinstance(message, PublishKeyed):
            self._send(encode_keyed(self.session, message), urgent=False)
        else:
            self._send(encode(self.session, message), urgent=True)

    def send_last(self, message: ClientMessage) -> None:
        """Sends a control message that must not overtake anything."""
        self._send(encode(self.session, message), urgent=False)

    def publish(self, batch: Publish) -> None:
        """Sends a batch of events."""
        self._send(encode_publish(self.session, batch), urgent=False)

    def take(self) -> list[Effect]:
        """All effects so far; emptied by the call."""
        effects = self._effects
        self._effects = []
        self._urgent = self._ordinary = None
        return effects

    def _send(self, payload: Payload, *, urgent: bool) -> None:
        self.sent_at = self.now
        frames = self._urgent if urgent else self._ordinary
        if frames is None:
            frames = SendFrames(self.link, [], urgent)
            self._effects.append(frames)
            if urgent:
                self._urgent = frames
            else:
                self._ordinary = frames
        frames.payloads.append(payload)
