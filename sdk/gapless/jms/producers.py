"""Producers: what is sent, and whom it is told when the broker has it.

A context has one publisher for each topic, so what is sent to one topic is logged in the order in which it was sent.
What was sent is durable when `send` returns; with a completion listener it returns at once.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from concurrent.futures import Future
from threading import Condition, Thread, get_ident
from typing import TYPE_CHECKING, Any, Final, Protocol

from typing_extensions import Self

from gapless import loggers
from gapless.client.receipts import Receipt
from gapless.core.stream.events import Event
from gapless.errors import GaplessError
from gapless.jms.bodies import message_with
from gapless.jms.errors import IllegalStateError, JMSError, named
from gapless.jms.messages import Message, Topic
from gapless.selectors.headers import PERSISTENT, PRIORITY

if TYPE_CHECKING:
    from gapless.client.messages import Message as SentMessage
    from gapless.jms.contexts import JMSContext
    from gapless.sync import Publisher, Session

NON_PERSISTENT: Final = "NON_PERSISTENT"
PUBLISHERS_MAX: Final = 64
"""How many topics have a publisher at once; beyond that the one that was used least recently is closed."""
OUTSTANDING_MAX: Final = 1024
"""How many messages with a completion listener may have no answer; beyond that `send` waits."""

log = loggers.logger("gapless.jms")


class CompletionListener(Protocol):
    """What is called with the fate of each message that was sent in its name: one after another, in the order sent."""

    def on_completion(self, message: Message) -> None:
        """The message is logged."""

    def on_exception(self, message: Message, exception: GaplessError) -> None:
        """The message is not logged, or it is uncertain whether it is."""


class JMSProducer:
    """Sends messages. Made by a context; its setters return it, so that calls can follow one another."""

    def __init__(self, context: JMSContext) -> None:
        """For the context."""
        self._context = context
        self._given = Message()
        """The properties and headers that every message is given."""
        self._mode = PERSISTENT
        self._priority = PRIORITY
        self._time_to_live = 0
        self._async: CompletionListener | None = None

    def send(self, destination: Topic | str, body: Any = None) -> Self:
        """Sends a message, or a body: a str, bytes, a mapping, None, or anything else that JSON can say.

        It returns when the broker has logged it, and then the message has its headers; with a completion listener it
        returns at once. Raises InvalidDestinationError, MessageFormatError, JMSError.
        """
        topic = destination if isinstance(destination, Topic) else Topic(destination)
        message = body if isinstance(body, Message) else message_with(body)
        expiration = time.time_ns() // 1_000_000 + self._time_to_live if self._time_to_live else 0
        sent = message.sent_with(self._given).to_sent(topic.get_topic_name(), self._priority, expiration)
        self._context.send(message, sent, self._async)
        return self

    # ---- how messages are sent

    def set_priority(self, priority: int) -> Self:
        """Sets 0 to 9. Topics keep the order in which they were sent to; a selector may name it."""
        if not 0 <= priority <= 9:
            raise JMSError(f"a priority is 0 to 9, not {priority}")
        self._priority = priority
        return self

    def get_priority(self) -> int:
        """Returns the priority."""
        return self._priority

    def set_time_to_live(self, milliseconds: int) -> Self:
        """Sets after how many milliseconds from its sending a message expires; 0: never."""
        if milliseconds < 0:
            raise JMSError(f"a time to live is not negative: {milliseconds}")
        self._time_to_live = milliseconds
        return self

    def get_time_to_live(self) -> int:
        """Returns the time to live, in milliseconds."""
        return self._time_to_live

    def set_delivery_delay(self, milliseconds: int) -> Self:
        """Takes 0 only: gapless has no delivery delay yet."""
        if milliseconds:
            raise JMSError("there is no delivery delay yet: messages are delivered at once")
        return self

    def set_delivery_mode(self, mode: str) -> Self:
        """Takes PERSISTENT and NON_PERSISTENT; messages are as durable as the broker's storage in both."""
        if mode not in (PERSISTENT, NON_PERSISTENT):
            raise JMSError(f"a delivery mode is {PERSISTENT} or {NON_PERSISTENT}, not {mode!r}")
        self._mode = mode
        return self

    def get_delivery_mode(self) -> str:
        """Returns the mode that was set; all messages are sent PERSISTENT."""
        return self._mode

    def set_disable_message_id(self, _disabled: bool) -> Self:  # noqa: FBT001 - the name that JMS has
        """A hint, which changes nothing: a message's id is where it is logged."""
        return self

    def set_disable_message_timestamp(self, _disabled: bool) -> Self:  # noqa: FBT001 - as above
        """A hint, which changes nothing: a message's timestamp is where it is logged."""
        return self

    def set_async(self, listener: CompletionListener | None) -> Self:
        """Sends without waiting from now on, and calls this when a message is logged; None: waits again."""
        self._async = listener
        return self

    def get_async(self) -> CompletionListener | None:
        """Returns the completion listener."""
        return self._async

    # ---- what messages are given

    def set_jms_correlation_id(self, correlation_id: str | None) -> Self:
        """Sets the reference to another message that every message is given."""
        self._given.set_jms_correlation_id(correlation_id)
        return self

    def get_jms_correlation_id(self) -> str | None:
        """Returns the reference that was set."""
        return self._given.get_jms_correlation_id()

    def set_jms_reply_to(self, topic: Topic | None) -> Self:
        """Sets the topic for answers that every message is given."""
        self._given.set_jms_reply_to(topic)
        return self

    def get_jms_reply_to(self) -> Topic | None:
        """Returns the topic that was set."""
        return self._given.get_jms_reply_to()

    def set_jms_type(self, name: str | None) -> Self:
        """Sets the name for the kind of message that every message is given."""
        self._given.set_jms_type(name)
        return self

    def get_jms_type(self) -> str | None:
        """Returns the name that was set."""
        return self._given.get_jms_type()

    def set_property(self, name: str, value: bool | float | str | None) -> Self:  # noqa: FBT001 - any of them
        """Sets a property that every message is given: a bool, an int (a long), a float (a double) or a str.

        A property of another type is set at the message. Raises MessageFormatError.
        """
        self._given.set_object_property(name, value)
        return self

    def get_property(self, name: str) -> bool | int | float | str | None:
        """Returns a property that was set; None: there is none."""
        return self._given.get_object_property(name)

    def property_exists(self, name: str) -> bool:
        """Whether such a property was set."""
        return self._given.property_exists(name)

    def get_property_names(self) -> list[str]:
        """Returns the names of the properties that were set."""
        return self._given.get_property_names()

    def clear_properties(self) -> Self:
        """Removes all properties that were set."""
        self._given.clear_properties()
        return self


class Sending:
    """What one context has sent: its publishers by topic, and the messages whose listeners wait for an answer."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._publishers: OrderedDict[str, Publisher] = OrderedDict()
        self._changed = Condition()
        self._outstanding: deque[tuple[Message, SentMessage, CompletionListener, Future[Receipt]]] = deque()
        self._thread: Thread | None = None
        self._ended = False

    @property
    def is_calling(self) -> bool:
        """Whether the caller is a completion listener."""
        return self._thread is not None and get_ident() == self._thread.ident

    def send(self, message: Message, sent: SentMessage, listener: CompletionListener | None) -> None:
        """Sends a message, and waits until it is logged, or calls the listener then."""
        publisher = self._publisher(sent.topic or "")
        if listener is None:
            on_logged(message, sent, publisher.publish(sent))
            return
        future = publisher.submit(sent)
        with self._changed:
            self._outstanding.append((message, sent, listener, future))
            self._changed.notify_all()
            if self._thread is None:
                self._thread = Thread(target=self._complete, name="gapless jms completions", daemon=True)
                self._thread.start()
            if not self.is_calling:
                self._changed.wait_for(lambda: len(self._outstanding) < OUTSTANDING_MAX)

    def wait(self) -> None:
        """Waits until all listeners were called. Raises IllegalStateError in one of them."""
        if self.is_calling:
            raise IllegalStateError("a completion listener cannot wait for itself: not in here")
        with self._changed:
            self._changed.wait_for(lambda: not self._outstanding)

    def end(self) -> None:
        """Ends the thread; what it waits for is answered, as the session is closed."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _publisher(self, topic: str) -> Publisher:
        publisher = self._publishers.get(topic)
        if publisher is not None and publisher.error is not None:
            del self._publishers[topic]  # it is over, and its senders have got the reason: this is the next one
            publisher = None
        if publisher is None:
            if len(self._publishers) >= PUBLISHERS_MAX:
                _, oldest = self._publishers.popitem(last=False)
                oldest.close()
            publisher = self._publishers[topic] = self._session.publisher(topic)
        self._publishers.move_to_end(topic)
        return publisher

    def _complete(self) -> None:
        """Calls the listeners, one after another."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outstanding or self._ended)
                if not self._outstanding:
                    return
                message, sent, listener, future = self._outstanding[0]
            try:
                try:
                    receipt = future.result()
                except GaplessError as error:
                    listener.on_exception(message, named(error))
                else:
                    on_logged(message, sent, receipt)
                    listener.on_completion(message)
            except Exception:  # it is the application's, and there is nobody to hear of it
                log.exception("a completion listener has raised")
            with self._changed:
                self._outstanding.popleft()
                self._changed.notify_all()


def on_logged(message: Message, sent: SentMessage, receipt: Receipt) -> None:
    """A message is logged: sets the headers that it got by that."""
    message.on_sent(
        Event.make(
            sent.topic or "",
            pubend=receipt.pubend,
            tick=receipt.tick,
            priority=sent.priority,
            expiration=sent.expiration,
        )
    )
