"""Where a JMS-style program begins: a factory makes contexts, and a context is a connection with one session.

A context is used by one thread at a time. Contexts that one makes from another share its connection: they are started
and stopped together, and have one exception listener.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from threading import Lock, RLock
from types import TracebackType
from typing import Any, Final, TypeAlias

from typing_extensions import Self

from gapless import loggers, sync
from gapless.client.ack_modes import AckMode
from gapless.client.credentials import Password
from gapless.client.messages import Message as SentMessage
from gapless.client.options import check_name
from gapless.client.receipts import Receipt
from gapless.errors import ConfigurationError, GaplessError
from gapless.jms.bodies import BytesMessage, JsonMessage, MapMessage, StreamMessage, TextMessage
from gapless.jms.consumers import Gate, JMSConsumer
from gapless.jms.errors import IllegalStateError, InvalidClientIDError, JMSError, names_of_jms
from gapless.jms.messages import Message, Topic
from gapless.jms.producers import CompletionListener, JMSProducer, Sending, on_logged
from gapless.sync.session import Transactions

ExceptionListener: TypeAlias = Callable[[Exception], object]
"""It is called with an error that no caller hears of."""

log = loggers.logger("gapless.jms")


class SessionMode(IntEnum):
    """Who acknowledges what the consumers of a context are handed."""

    SESSION_TRANSACTED = 0
    """The program, with `commit`: what was received and sent since the last one takes effect together."""
    AUTO_ACKNOWLEDGE = 1
    """The context, when the next message is asked for, or when a listener has returned; durably before the next."""
    CLIENT_ACKNOWLEDGE = 2
    """The program, with `acknowledge`."""
    DUPS_OK_ACKNOWLEDGE = 3
    """The context, lazily: more comes again after a failure, and it is not marked."""


_MODES: Final = {
    SessionMode.SESSION_TRANSACTED: AckMode.CLIENT,
    SessionMode.AUTO_ACKNOWLEDGE: AckMode.AUTO,
    SessionMode.CLIENT_ACKNOWLEDGE: AckMode.CLIENT,
    SessionMode.DUPS_OK_ACKNOWLEDGE: AckMode.DUPS_OK,
}


class ConnectionFactory:
    """Makes contexts, each with a connection of its own."""

    def __init__(
        self, url: str, client_id: str | None = None, *, user: str | None = None, password: str | None = None
    ) -> None:
        """`url`: as for `gapless.connect`. `client_id`: the first half of the names of durable subscriptions.

        `user` and `password` come together; the address may name them instead. Raises JMSError.
        """
        self._url = url
        self._client_id = _checked(client_id)
        self._credentials: Password | None = None
        if user is not None or password is not None:
            with names_of_jms():
                self._credentials = Password(user or "", password or "")
        del password  # whoever shows the variables of a traceback shows no secret

    def create_context(self, session_mode: int = SessionMode.AUTO_ACKNOWLEDGE) -> JMSContext:
        """Connects, and returns a context. Raises JMSSecurityError, JMSError."""
        mode = _mode(session_mode)
        return JMSContext(SharedConnection(self._url, self._client_id, self._credentials), mode)


class SharedConnection:
    """A connection, and what its contexts share."""

    def __init__(self, url: str, client_id: str, credentials: Password | None) -> None:
        self.url = url
        self._credentials = credentials
        self.gate = Gate()
        self.contexts: set[JMSContext] = set()
        self.durable: set[str] = set()
        """The names of the durable subscriptions that have a consumer here."""
        self.is_used = False
        """Whether anything was done with it: then it is too late for a client id."""
        self.exception_listener: ExceptionListener | None = None
        self._telling = Lock()
        self.connect(client_id)

    def connect(self, client_id: str) -> None:
        """Connects as this client."""
        with names_of_jms():
            self.below = sync.connect(self.url, client_id=client_id, credentials=self._credentials, identify=True)

    def tell(self, error: Exception) -> None:
        """An error has happened that no caller hears of: the exception listener does, or the log."""
        with self._telling:
            if self.exception_listener is None:
                log.error("there is no exception listener, and a consumer met %r", error, exc_info=error)
                return
            try:
                self.exception_listener(error)
            except Exception:  # there is nobody left to hear of this one
                log.exception("the exception listener has raised, at %r", error)


class JMSContext:
    """A connection with one session: makes messages, producers and consumers. To be used as a block, or closed.

    A block that is left by an exception acknowledges nothing of what was handed out last.
    """

    def __init__(self, connection: SharedConnection, mode: SessionMode) -> None:
        """For the factory."""
        self._connection = connection
        self._mode = mode
        self._auto_start = True
        self._consumers: set[JMSConsumer] = set()
        self._closed = False
        self._has_left = False
        """Whether it has ended, too: a `close` that was interrupted may be repeated."""
        self._kept: list[tuple[Message, SentMessage]] = []
        """What was sent in the present transaction."""
        self.gate = connection.gate
        self.turn = RLock()
        """Held while one of its listeners runs."""
        self._open_session()
        connection.contexts.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    # ---- the connection

    def get_client_id(self) -> str | None:
        """Returns the client id; None if there is none."""
        return self._connection.below.client_id or None

    def set_client_id(self, client_id: str) -> None:
        """Sets the client id, if the factory has not. Before anything else is done with the connection.

        Raises IllegalStateError, InvalidClientIDError.
        """
        self.check_open()
        if self.get_client_id() is not None:
            raise IllegalStateError(f"the client id is {self.get_client_id()!r} already")
        if self._connection.is_used:
            raise IllegalStateError("a client id is set before anything else is done with a connection")
        if client_id is None:
            raise InvalidClientIDError("a client id is a text; a context without one needs no call")
        checked = _checked(client_id)
        self._connection.below.close()
        self._connection.connect(checked)
        self._open_session()

    def get_exception_listener(self) -> ExceptionListener | None:
        """Returns the exception listener of the connection."""
        return self._connection.exception_listener

    def set_exception_listener(self, listener: ExceptionListener | None) -> None:
        """Calls this with errors that no caller hears of: those of listeners, and of their subscriptions.

        A lost connection is none of them: gapless connects again by itself, and loses nothing.
        """
        self._use()
        self._connection.exception_listener = listener

    def start(self) -> None:
        """Lets the consumers of the connection hand out messages. Idempotent."""
        self._use()
        self.gate.open()

    def stop(self) -> None:
        """Lets them hand out nothing, and waits for listeners that run. What `receive` waits for goes on waiting.

        Sending goes on. Idempotent. Raises IllegalStateError in a listener or completion listener of the connection.
        """
        self._use()
        if self._sending.is_calling:
            raise IllegalStateError("a completion listener cannot stop its own connection: it would wait for itself")
        self.gate.shut()

    def get_auto_start(self) -> bool:
        """Returns whether the first consumer starts the connection."""
        return self._auto_start

    def set_auto_start(self, auto_start: bool) -> None:  # noqa: FBT001 - the name that JMS has
        """Sets whether a new consumer starts the connection; it does by default."""
        self._auto_start = auto_start

    def create_context(self, session_mode: int) -> JMSContext:
        """Returns another context on the same connection, to be used by another thread."""
        self._use()
        return JMSContext(self._connection, _mode(session_mode))

    # ---- the session

    def get_session_mode(self) -> SessionMode:
        """Returns the session's mode."""
        return self._mode

    def get_transacted(self) -> bool:
        """Returns whether it has transactions."""
        return self._mode is SessionMode.SESSION_TRANSACTED

    def acknowledge(self) -> None:
        """With CLIENT_ACKNOWLEDGE: acknowledges all that its consumers have handed out. Otherwise it does nothing.

        It returns when that is durable. What a closed consumer had handed out is not part of it, and comes again.
        """
        self.check_open()
        if self._mode is SessionMode.CLIENT_ACKNOWLEDGE:
            with names_of_jms():
                self._session.acknowledge()

    def recover(self) -> None:
        """Hands out again, marked, what was handed out and is not acknowledged. With the other modes that is nothing.

        It may be called in a listener.
        """
        self.check_open()
        if self.get_transacted():
            raise IllegalStateError("a transaction is rolled back, not recovered")
        if self._mode is SessionMode.CLIENT_ACKNOWLEDGE:
            with self.turn, names_of_jms():
                self._session.recover()

    def commit(self) -> None:
        """Commits what its durable consumers have handed out, and what was sent: all of it takes effect, or nothing.

        It returns when that is durable, and the messages that were sent have their headers then. All of them must go to
        one pubend. May be called in a listener. Raises TransactionRolledBackError (nothing took effect, and what was
        handed out comes again), TransactionInDoubtError, and IllegalStateError in the other modes.
        """
        transactions = self._check_transacted()
        with self.turn, names_of_jms():
            receipts = self._committed(transactions)
            kept, self._kept = self._kept, []
            # Those before them are of a commit that was interrupted: its receipts are gone, not its messages.
            for (message, sent), receipt in zip(kept[len(kept) - len(receipts) :], receipts, strict=True):
                on_logged(message, sent, receipt)

    def rollback(self) -> None:
        """Forgets what was sent since the last commit, and hands out again, marked, what was handed out since.

        May be called in a listener. Raises IllegalStateError in the other modes.
        """
        transactions = self._check_transacted()
        with self.turn, names_of_jms():
            self._kept = []
            transactions.rollback()

    def close(self) -> None:
        """Ends it, its consumers and producers, and the connection with its last context. Idempotent.

        It waits for listeners, and for completion listeners. Raises IllegalStateError if one of its own calls it; a
        listener of another context may, unless the two would wait for each other.
        """
        self._leave(None)

    # ---- what it makes

    def create_topic(self, name: str) -> Topic:
        """Returns a destination. Nothing is made at the broker. Raises InvalidDestinationError."""
        return Topic(name)

    def create_message(self) -> Message:
        """Returns a message without a body."""
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """Returns a message with a text."""
        message = TextMessage()
        message.set_text(text)
        return message

    def create_bytes_message(self) -> BytesMessage:
        """Returns a message with bytes, to be written."""
        return BytesMessage()

    def create_map_message(self) -> MapMessage:
        """Returns a message with values by name."""
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        """Returns a message with a sequence of values, to be written."""
        return StreamMessage()

    def create_json_message(self, value: Any = None) -> JsonMessage:
        """Returns a message with anything that JSON can say, in the place of Java's ObjectMessage."""
        message = JsonMessage()
        message.set_object(value)
        return message

    def create_producer(self) -> JMSProducer:
        """Returns a producer."""
        self._use()
        return JMSProducer(self)

    def create_consumer(
        self,
        topic: Topic | str,
        selector: str | None = None,
        no_local: bool = False,  # noqa: FBT001, FBT002 - the arguments that JMS has
    ) -> JMSConsumer:
        """Returns a consumer of what is sent to a topic from now on. A str may be a pattern, as `orders.#`.

        `no_local`: not what this client sends; without a client id, not what this connection sends.
        Raises InvalidSelectorError, InvalidDestinationError.
        """
        return self._consumer(topic, None, selector, no_local=no_local)

    def create_durable_consumer(
        self,
        topic: Topic | str,
        name: str,
        selector: str | None = None,
        no_local: bool = False,  # noqa: FBT001, FBT002 - the arguments that JMS has
    ) -> JMSConsumer:
        """Returns a consumer of a durable subscription, which is created unless it exists. It needs a client id.

        With another topic, selector or `no_local` than it has, it is removed and made anew: what it had kept is gone.

        Raises IllegalStateError if the subscription has a consumer, InvalidSelectorError, InvalidDestinationError, and
        JMSError for a name that is none.
        """
        if self.get_client_id() is None:
            raise IllegalStateError("a durable subscription needs a client id: give it to the ConnectionFactory")
        with names_of_jms():
            name = check_name(name, "the name of a durable subscription")
        return self._consumer(topic, name, selector, no_local=no_local)

    def unsubscribe(self, name: str) -> None:
        """Removes a durable subscription.

        Raises IllegalStateError if it has a consumer on this connection, InvalidDestinationError if there is none. A
        consumer on another connection is ended: it gets an error.
        """
        self._use()
        if self.get_client_id() is None:
            raise IllegalStateError("a durable subscription is of a client id, and this connection has none")
        with names_of_jms():
            name = check_name(name, "the name of a durable subscription")
        if name in self._connection.durable:
            raise IllegalStateError(f"the subscription {name!r} has a consumer here: close it first")
        with names_of_jms():
            self._connection.below.unsubscribe(name)

    # ---- for its consumers and producers

    def check_open(self) -> None:
        """Raises IllegalStateError if it is closed."""
        if self._closed:
            raise IllegalStateError("the context is closed")

    @property
    def has_listener(self) -> bool:
        """Whether one of its consumers has a listener."""
        return any(consumer.get_message_listener() is not None for consumer in self._consumers)

    @property
    def is_receiving(self) -> bool:
        """Whether another thread than the caller receives from one of its consumers."""
        return any(each.is_busy_elsewhere for each in self._consumers if each.get_message_listener() is None)

    @property
    def redelivers_at_once(self) -> bool:
        """Whether a listener that raises is given its message again."""
        return self._mode in (SessionMode.AUTO_ACKNOWLEDGE, SessionMode.DUPS_OK_ACKNOWLEDGE)

    def tell(self, error: Exception) -> None:
        """An error has happened that no caller hears of."""
        self._connection.tell(error)

    def send(self, message: Message, sent: SentMessage, listener: CompletionListener | None) -> None:
        """Sends a message, for a producer."""
        self.check_open()
        if self._transactions is not None:
            if listener is not None:
                raise JMSError("what is sent in a transaction is logged by its commit: there is nothing to listen for")
            self._kept.append((message, sent))
            self._transactions.send(sent)
            return
        with names_of_jms():
            self._sending.send(message, sent, listener)

    # ---- how it is done

    def _open_session(self) -> None:
        self._session = self._connection.below.session(_MODES[self._mode])
        self._transactions = self._session.transactions() if self.get_transacted() else None
        self._kept = []
        self._sending = Sending(self._session)

    def _consumer(self, topic: Topic | str, name: str | None, selector: str | None, *, no_local: bool) -> JMSConsumer:
        self._use()
        with self.gate.changed:
            if name in self._connection.durable:
                raise IllegalStateError(f"the subscription {name!r} has a consumer already")
            if name is not None:
                self._connection.durable.add(name)

        def forget(consumer: JMSConsumer) -> None:
            with self.gate.changed:
                self._consumers.discard(consumer)
                self._connection.durable.discard(name or "")

        made: list[JMSConsumer] = []
        wanted: Any = "" if selector is None else selector
        try:
            with names_of_jms():
                pattern = topic.get_topic_name() if isinstance(topic, Topic) else topic
                subscription = self._session.subscribe(
                    pattern,
                    name=name,
                    selector=wanted.strip() if isinstance(wanted, str) else wanted,
                    on_change="error" if name is None else "jms",
                    no_local=no_local,
                )
                made.append(JMSConsumer(self, subscription, forget))
            with self.gate.changed:
                self._consumers.add(made[0])
            if self._auto_start:
                self.gate.open()
            return made[0]
        except BaseException:
            for consumer in made:
                consumer.end(abandons=True)
            with self.gate.changed:
                self._connection.durable.discard(name or "")
            raise

    def _use(self) -> None:
        self.check_open()
        self._connection.is_used = True

    def _check_transacted(self) -> Transactions:
        self.check_open()
        if self._transactions is None:
            raise IllegalStateError("the context has no transactions: its mode is not SESSION_TRANSACTED")
        return self._transactions

    def _committed(self, transactions: Transactions) -> list[Receipt]:
        try:
            return transactions.commit()
        except GaplessError:
            self._kept = []
            raise

    def _leave(self, error: BaseException | None) -> None:
        """Closes it. With an error nothing that was handed out last is acknowledged."""
        if self._has_left:
            return
        if self._sending.is_calling:
            raise IllegalStateError("a completion listener cannot close its own context: it would wait for itself")
        with self.gate.closes(self):
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self._closed = True
        errors: list[GaplessError] = []
        for consumer in list(self._consumers):
            try:
                consumer.end(abandons=error is not None)
            except GaplessError as raised:
                errors.append(raised)
        self._connection.contexts.discard(self)
        try:
            with names_of_jms():
                if error is None:
                    try:
                        self._session.close()  # answers what was sent, or gives it up in some seconds
                    finally:
                        self._sending.wait()
                else:
                    self._session.abandon()
                if not self._connection.contexts:
                    self._connection.below.close()
        except GaplessError as raised:
            errors.append(raised)
        self._sending.end()
        self._has_left = True
        if errors and error is None:
            raise errors[0]


def _mode(session_mode: int) -> SessionMode:
    try:
        mode = SessionMode(session_mode)
    except ValueError:
        raise JMSError(f"{session_mode!r} is no session mode: AUTO_ACKNOWLEDGE is one") from None
    return mode


def _checked(client_id: str | None) -> str:
    if client_id is None:
        return ""
    try:
        return check_name(client_id, "the client id")
    except ConfigurationError as error:
        raise InvalidClientIDError(str(error)) from error
