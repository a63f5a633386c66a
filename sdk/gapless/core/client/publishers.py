"""All publishers of one connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gapless.core.client.backoff import Backoff
from gapless.core.client.outbox import Outbox
from gapless.core.client.publishing import Phase, PublisherCore
from gapless.core.client.timers import Key
from gapless.core.deadlines import Deadlines
from gapless.core.wire.messages import Published, PublisherOpened, PublishRefused, Welcome
from gapless.errors import GaplessError

if TYPE_CHECKING:
    from gapless.core.stream.columns import EventColumns


class Publishers:
    """Finds the publisher that a message or a command is for; one that is over is forgotten."""

    def __init__(self, outbox: Outbox, deadlines: Deadlines[Key], backoff: Callable[[], Backoff]) -> None:
        self._outbox = outbox
        self._deadlines = deadlines
        self._backoff = backoff
        self._publishers: dict[int, PublisherCore] = {}

    def get(self, number: int) -> PublisherCore | None:
        """The publisher with this number, unless it is over."""
        return self._publishers.get(number)

    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Which of the broker's messages are for publishers. One that is over hears nothing."""
        return {
            PublisherOpened: self._on_opened,
            Published: self._on_published,
            PublishRefused: self._on_refused,
        }

    # What happened.

    def on_session(self, welcome: Welcome) -> None:
        """A session is open."""
        for publisher in self._publishers.values():
            publisher.on_session(welcome)

    def on_session_over(self) -> None:
        """The session is over."""
        for publisher in self._publishers.values():
            publisher.on_session_over()

    def on_deadline(self, number: int) -> None:
        """What a publisher put off is due."""
        publisher = self._publishers.get(number)
        if publisher is not None:
            publisher.on_deadline()

    # Commands.

    def open(self, number: int, name: str, instance: str, topic: str | None, welcome: Welcome | None) -> int:
        """Opens a publisher, at once if there is a session."""
        backoff = self._backoff()
        publisher = PublisherCore(number, name, instance, topic, backoff, self._outbox, self._deadlines)
        self._publishers[number] = publisher
        if welcome is not None:
            publisher.on_session(welcome)
        return number

    def publish(self, number: int, events: EventColumns) -> int:
        """Queues a batch."""
        return self._publishers[number].publish(events)

    def fail(self, number: int, error: GaplessError) -> None:
        """Ends a publisher, if it is not over."""
        publisher = self._publishers.pop(number, None)
        if publisher is not None:
            publisher.fail(error)

    def fail_all(self, error: GaplessError) -> None:
        """Ends all publishers."""
        for number in list(self._publishers):
            self.fail(number, error)

    # How it is done.

    def _on_opened(self, message: PublisherOpened) -> None:
        publisher = self._publishers.get(message.publisher)
        if publisher is not None:
            publisher.on_opened(message)

    def _on_published(self, message: Published) -> None:
        publisher = self._publishers.get(message.publisher)
        if publisher is not None:
            publisher.on_published(message)

    def _on_refused(self, message: PublishRefused) -> None:
        publisher = self._publishers.get(message.publisher)
        if publisher is not None:
            publisher.on_refused(message, self._outbox.now)
            if publisher.phase is Phase.OVER:
                del self._publishers[message.publisher]
