"""Consumers: `receive` for who waits for messages, a listener for who is called with them.

All consumers of a connection share a gate. While it is shut, nothing is handed out. A listener has a thread, and the
listeners of one context run one after another: each waits until something is there, then for its turn, and takes it
only then. What was taken and may not be handed out any more, as the gate was shut meanwhile, is put back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread, get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from typing_extensions import Self

from gapless import loggers
from gapless.errors import GapError, GaplessError
from gapless.jms.bodies import message_of
from gapless.jms.errors import IllegalStateError, MessageFormatError, named, names_of_jms

if TYPE_CHECKING:
    from gapless.core.stream.events import Event
    from gapless.jms.contexts import JMSContext
    from gapless.jms.messages import Message
    from gapless.sync import Subscription

MessageListener: TypeAlias = "Callable[[Message], object]"
"""It is called with each message, in a thread of the profile."""

REDELIVERIES: Final = 6
"""How often a message is given again at once to a listener that raises, in the modes that do so."""

log = loggers.logger("gapless.jms")

_Body = TypeVar("_Body")
_Received = TypeVar("_Received")


class Gate:
    """Whether the consumers of a connection hand out messages, and which listeners run at present."""

    def __init__(self) -> None:
        self.changed = Condition()
        """What the consumers and contexts of the connection share is changed and looked at under this lock."""
        self.is_open = False
        self.running: dict[int, JMSContext] = {}
        """The threads in which listeners run, and whose listeners they are."""
        self.closing: dict[JMSContext, JMSContext] = {}
        """The contexts whose listener is closing another one, and which: it waits for the listeners of that."""

    def open(self) -> None:
        """Lets messages through. Idempotent."""
        with self.changed:
            self.is_open = True
            self.changed.notify_all()

    @contextmanager
    def closes(self, context: JMSContext) -> Iterator[None]:
        """A context is being closed. Raises IllegalStateError if that would wait for the listener that closes it."""
        with self.changed:
            own = self.running.get(get_ident())
            waits_for: JMSContext | None = context
            while waits_for is not None:
                if waits_for is own:
                    raise IllegalStateError("a listener cannot close its own context: it would wait for itself")
                waits_for = self.closing.get(waits_for)
            if own is not None:
                self.closing[own] = context
        try:
            yield
        finally:
            if own is not None:
                with self.changed:
                    del self.closing[own]

    def shut(self) -> None:
        """Lets no message through any more, and waits for the listeners that run. Idempotent."""
        with self.changed:
            if get_ident() in self.running:
                raise IllegalStateError("a listener cannot stop its own connection: it would wait for itself")
            self.is_open = False
            self.changed.wait_for(lambda: not self.running)


class JMSConsumer:
    """Receives the messages of a topic, or of a durable subscription. Made by a context."""

    def __init__(
        self, context: JMSContext, subscription: Subscription[Event, Any], on_closed: Callable[[JMSConsumer], None]
    ) -> None:
        """For the context."""
        self._context = context
        self._subscription = subscription
        self._on_closed = on_closed
        self._gate = context.gate
        self._listener: MessageListener | None = None
        self._thread: Thread | None = None
        self._busy_in = 0
        """The thread that takes something from the subscription, or has something in hand; 0: none."""
        self._closed = False
        self._fails = False
        """Whether it was closed while its listener could not do with a message."""
        self._closed_by_itself = False
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str | None:
        """The name of its durable subscription; None if it is not durable."""
        return self._subscription.name

    def get_message_selector(self) -> str | None:
        """Returns its selector; None if every message is selected."""
        return self._subscription.selector or None

    # ---- receiving

    def receive(self, timeout: int = 0) -> Message | None:
        """Returns the next message; None if none came within so many milliseconds, or when the consumer is closed.

        0: it waits for ever. With AUTO_ACKNOWLEDGE a message is acknowledged when the next one is asked for, or the
        consumer is closed: JMS does so when it returns the message, and a crash then loses it.
        """
        return self._received(_until(timeout), self._message)

    def receive_no_wait(self) -> Message | None:
        """Returns the next message if it has arrived; None otherwise. It waits for the acknowledgement of the last."""
        return self._received(0, self._message)

    def receive_body(self, kind: type[_Body], timeout: int = 0) -> _Body | None:
        """Returns the body of the next message, as this type; None as `receive`.

        Raises MessageFormatError if it is of another type. Then the next call gets the same message.
        """
        return self._received(_until(timeout), lambda event: self._body(kind, event))

    def receive_body_no_wait(self, kind: type[_Body]) -> _Body | None:
        """Returns the body of the next message if it has arrived, as `receive_body`."""
        return self._received(0, lambda event: self._body(kind, event))

    # ---- being called

    def get_message_listener(self) -> MessageListener | None:
        """Returns the listener."""
        return self._listener

    def set_message_listener(self, listener: MessageListener) -> None:
        """Calls this with each message from now on, in a thread; in the place of another one, if there is one.

        If it raises, the message is given again at once, marked, up to six times, and after that the exception listener
        hears of it; with CLIENT_ACKNOWLEDGE the next message follows. No listener again: close the consumer.

        Raises IllegalStateError while another thread receives in this context.
        """
        if not callable(listener):
            raise TypeError("a listener is called with each message; to have none again, close the consumer")
        with self._gate.changed:
            self._check_open()
            if self._context.is_receiving:
                raise IllegalStateError("another thread receives in this context: it would wait beside the listener")
            self._listener = listener
            if self._thread is not None:
                return
            self._thread = Thread(target=self._listen, name=f"gapless jms {self.name or 'listener'}", daemon=True)
        self._thread.start()

    # ---- the end

    def close(self) -> None:
        """Ends it, and waits for its listener; a `receive` that waits returns None. Idempotent.

        A durable subscription lives on. With AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE what was handed out is
        acknowledged; with CLIENT_ACKNOWLEDGE what is not acknowledged comes again. Its own listener may call it: then
        it ends when the listener has returned.
        """
        self.end(abandons=False)

    def end(self, *, abandons: bool) -> None:
        """For the context. `abandons`: acknowledges nothing."""
        with self._gate.changed:
            self._closed = True
            self._gate.changed.notify_all()
        self._subscription.drain()
        if self._thread is not None and get_ident() == self._thread.ident:
            self._closed_by_itself = True
            return
        with self._gate.changed:
            self._gate.changed.wait_for(lambda: not self.is_busy_elsewhere)
            if self._ended:
                return
            self._ended = True
        self._on_closed(self)
        if abandons or self._fails:
            self._subscription.abandon()
        else:
            with names_of_jms():
                self._subscription.close()

    @property
    def is_busy_elsewhere(self) -> bool:
        """Whether another thread than the caller takes something here, or has something in hand."""
        return self._busy_in not in (0, get_ident())

    # ---- how it is done

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the consumer is closed")
        self._context.check_open()

    def _received(self, until: float | None, convert: Callable[[Event], _Received]) -> _Received | None:
        """Receives an event, and converts it. `until`: on the monotonic clock; 0: what is there; None: for ever.

        If a signal handler raises before that is returned, the event is the next one.
        """
        taken: list[Event] = []
        try:
            with self._receiving():
                self._next(until, taken)
                return convert(taken[0]) if taken else None
        except GaplessError:
            raise
        except BaseException:
            for event in taken:
                self._subscription.put_back(event)
            raise

    @contextmanager
    def _receiving(self) -> Iterator[None]:
        with self._gate.changed:
            self._check_open()
            if self._context.has_listener:
                raise IllegalStateError("this context has a listener: what it receives comes to listeners only")
            if self.is_busy_elsewhere:
                raise IllegalStateError("another thread receives here: a context is used by one at a time")
            self._busy_in = get_ident()
        try:
            with names_of_jms():
                yield
        finally:
            self._be_idle()

    def _may_hand_out(self) -> bool:
        return self._gate.is_open and not self._closed

    def _be_idle(self) -> None:
        with self._gate.changed:
            self._busy_in = 0
            self._gate.changed.notify_all()

    def _next(self, until: float | None, taken: list[Event]) -> None:
        """Takes the next event, if there is one."""
        changed = self._gate.changed
        while True:
            with changed:
                changed.wait_for(lambda: self._gate.is_open or self._closed, _left(until))
                if not self._may_hand_out():
                    return
            if until == 0:
                self._subscription.settle()
            event = self._subscription.receive(_left(until))
            if event is None:
                return
            taken.append(event)
            with changed:
                if self._may_hand_out():
                    return
            self._subscription.put_back(event)
            taken.clear()

    def _message(self, event: Event) -> Message:
        message = message_of(event)
        message.acknowledged_by(self._context.acknowledge)
        return message

    def _body(self, kind: type[_Body], event: Event) -> _Body:
        try:
            body = message_of(event).get_body(kind)
            if body is None:
                raise MessageFormatError("the next message has no body: receive() returns it")
        except MessageFormatError:
            self._subscription.put_back(event)
            raise
        return body

    # ---- the listener's thread

    def _listen(self) -> None:
        try:
            while self._arrived() and self._handed():
                pass
        except Exception:  # a bug of ours must not end in a thread that nobody looks at
            log.exception("the listener of %r has ended", self.name)
            raise
        finally:
            if self._closed_by_itself:
                self._finish()

    def _finish(self) -> None:
        """It was closed by its own listener, which has returned."""
        self._thread = None
        try:
            self.close()
        except GaplessError as error:
            self._context.tell(error)

    def _arrived(self) -> bool:
        """Waits until something is there and may be handed out. Returns False if nothing will be.

        It takes nothing: whoever acknowledges or recovers meanwhile does not mean what waits here for its turn.
        """
        try:
            if not self._subscription.wait():
                return False
        except GaplessError as error:
            if not self._closed:
                self._context.tell(named(error))
            return isinstance(error, GapError)  # after a gap it goes on; everything else has ended the subscription
        with self._gate.changed:
            self._gate.changed.wait_for(lambda: self._gate.is_open or self._closed)
        return True

    def _handed(self) -> bool:
        """Hands out what is there, unless the gate was shut. Returns False if there will be nothing more."""
        with self._context.turn:
            with self._gate.changed:
                listener = self._listener
                if self._closed or listener is None:
                    return False
                if not self._gate.is_open:
                    return True
                self._busy_in = get_ident()
                self._gate.running[get_ident()] = self._context
            try:
                event = self._subscription.receive(0)
                if event is not None:  # else it was recovered meanwhile
                    self._call(listener, event)
            except GaplessError:
                return True  # what waits next raises it again
            finally:
                with self._gate.changed:
                    self._gate.running.pop(get_ident(), None)
                self._be_idle()
        return not self._closed

    def _call(self, listener: MessageListener, event: Event) -> None:
        """Calls the listener with a message, and again if it raises. What it did to its message is not seen again."""
        for left in range(REDELIVERIES if self._context.redelivers_at_once else 0, -1, -1):
            try:
                with names_of_jms():
                    message = self._message(event)
            except GaplessError as error:
                self._context.tell(error)
                return
            try:
                listener(message)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the application's
                if not left or self._closed:
                    self._fails = left > 0
                    self._context.tell(error)
                    return
                log.warning("a listener raised %r; %s is given to it again", error, event.message_id)
                event.delivery_count += 1
            else:
                return


def _until(timeout: int) -> float | None:
    if timeout < 0:
        raise ValueError("a timeout is in milliseconds, and not negative; 0 waits for ever")
    return time.monotonic() + timeout / 1000 if timeout else None


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic()) if until else 0.0
