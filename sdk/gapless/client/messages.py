"""Messages: applications make them; they are checked and encoded as events before anything is sent."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import islice
from operator import attrgetter
from time import time_ns
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import ValidationError, convert

from gapless.core.stream import fast
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, PlainMapping, Property, encode_event, shorten
from gapless.errors import GaplessError, InvalidMessageError, InvalidTopicError
from gapless.selectors.headers import APP_ID, PRIORITY, SENT_DEFAULTS, SENT_FIELDS, sent_headers
from gapless.selectors.topics import check_topic
from gapless.selectors.values import PLAIN, plain_properties
from gapless.texts import control_problem

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]

TOPICS_REMEMBERED = 4096
NAMES_REMEMBERED = 4096

_names: set[str] = set()
"""Names of properties that were found correct, for all publishers: looking one up costs less than checking it anew."""


class _Plain(msgspec.Struct, array_like=True, gc=False):
    """Properties in their ranges: msgspec knows a struct already, where it would look at any other type anew."""

    properties: PlainMapping


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message to be published.

    `body` is bytes-like. `properties` are bool, int (64 bit), finite float or str; a None means that it is absent.
    Without `topic` it goes to the publisher's topic. `priority` is 0 to 9, `expiration` an aware datetime.
    """

    body: Any
    properties: Mapping[str, Property | None] = {}
    topic: str | None = None
    priority: int = PRIORITY
    expiration: datetime | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None

    def __repr__(self) -> str:
        """Shows the fields that are set, in one line of bounded length."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        shown = [
            f"{name}={shorten(value)}"
            for name, value in fields.items()
            if name == "body" or value not in (None, {}, PRIORITY)
        ]
        return f"Message({', '.join(shown)})"


_body_of, _properties_of = attrgetter("body"), attrgetter("properties")
_rest_of = attrgetter("topic", *(field.name for field in SENT_FIELDS))
_NO_REST = (None, *SENT_DEFAULTS)
"""What a message has that has only a body and properties."""


def check_message(message: Any) -> Message:
    """Returns a message. Raises InvalidMessageError for any other object."""
    if not isinstance(message, Message):
        raise InvalidMessageError(f"a gapless.Message is published, not {type(message).__name__}")
    return message


class Encoded:
    """The events of several messages, up to the first wrong message."""

    __slots__ = ("columns", "error")

    def __init__(self, columns: EventColumns, error: Exception | None) -> None:
        self.columns = columns
        self.error = error
        """Why the message after the last event is not published; None if all messages are here."""


class Encoder:
    """Encodes the messages of one publisher. Every method raises InvalidMessageError or InvalidTopicError."""

    def __init__(self, topic: str | None, stamp: str) -> None:
        """`topic` is for messages without one; it is checked here. `stamp`: the JMSXAppID of all of them; "": none."""
        self._stamp = {APP_ID: stamp} if stamp else {}
        self._topic = None if topic is None else check_topic(topic)
        self._topics: set[str] = set()
        """Topics that were found correct: looking one up costs less than checking it for each message."""

    def topic_of(self, message: Message) -> str:
        """Returns the topic of a message."""
        topic: Any = message.topic
        if topic is None:
            if self._topic is None:
                raise InvalidTopicError("this publisher has no topic of its own: name one with the message")
            return self._topic
        if type(topic) is not str or topic not in self._topics:
            topic = check_topic(topic)
            if len(self._topics) >= TOPICS_REMEMBERED:
                self._topics.clear()
            self._topics.add(topic)
        return topic  # type: ignore[no-any-return]

    def encode(self, message: Message, bytes_max: int) -> tuple[bytes, int]:
        """Returns the event, of at most `bytes_max` bytes, and the length of its body."""
        topic = self._topic if message.topic is None and self._topic is not None else self.topic_of(message)
        body = message.body
        if type(body) is not bytes:
            body = _as_bytes(body)
        properties = _plain_of(message.properties)
        if self._stamp:
            properties = {**properties, **self._stamp}
        headers = sent_headers(message)
        try:
            event = encode_event(topic, properties, None if headers == SENT_DEFAULTS else _to_send(headers), body)
        except UnicodeEncodeError as error:
            raise InvalidMessageError(f"a text of the message cannot be written as UTF-8: {error}") from error
        if len(event) > bytes_max:
            raise InvalidMessageError(
                f"an event of {len(event)} bytes: this broker takes at most {bytes_max}, headers included"
            )
        return event, len(body)

    def encode_all(self, messages: Sequence[Message], bytes_max: int) -> Encoded:
        """Returns the events of many messages. If they have only a body and properties, this costs a third."""
        columns = self._encode_alike(messages, bytes_max)
        if columns is not None:
            return Encoded(columns, None)
        events: list[bytes] = []
        body_lengths: list[int] = []
        wrong: Exception | None = None
        for message in messages:
            try:
                event, body_length = self.encode(check_message(message), bytes_max)
            except GaplessError as error:
                wrong = error
                break
            events.append(event)
            body_lengths.append(body_length)
        return Encoded(EventColumns.of(events, body_lengths), wrong)

    def _encode_alike(self, messages: Sequence[Message], bytes_max: int) -> EventColumns | None:
        """Returns the events if all messages are plain; None if one of them needs a closer look."""
        if self._topic is None or set(map(type, messages)) != {Message}:
            return None
        if list(map(_rest_of, messages)).count(_NO_REST) != len(messages):
            return None
        bodies, properties = list(map(_body_of, messages)), list(map(_properties_of, messages))
        try:
            if not _names.issuperset(set[str]().union(*properties)):
                return None
        except TypeError:
            return None  # one of them is no mapping
        if self._stamp:
            try:
                properties = [{**one, **self._stamp} for one in properties]
            except TypeError:
                return None  # one of them is no mapping
        encoded = fast.encode(self._topic, bodies, properties, bytes_max)
        return None if encoded is None else EventColumns(len(messages), *encoded)


def _plain_of(properties: Any) -> Mapping[str, Property]:
    """Returns properties as every event has them. Those of the exact types cost one call of msgspec's."""
    if type(properties) is dict:
        for name, value in properties.items():
            if type(name) is not str or type(value) not in PLAIN:
                break
        else:
            try:
                if _names.issuperset(properties):
                    return convert((properties,), _Plain).properties
            except ValidationError:
                pass  # a value is out of its range: what follows says which
    plain = plain_properties(properties)
    for name in plain:
        if problem := control_problem(name):
            raise InvalidMessageError(f"the name of a property {problem}")
    if len(_names) + len(plain) > NAMES_REMEMBERED:
        _names.clear()
    _names.update(islice(plain, NAMES_REMEMBERED))
    return plain


def _as_bytes(body: Buffer | Any) -> bytes:
    """Returns the bytes of a bytes-like object."""
    try:
        return memoryview(body).tobytes()
    except TypeError:
        hint = ""
        if isinstance(body, str):
            hint = ": encode it first, with .encode()"
        elif isinstance(body, Message):
            hint = ": a whole Message goes to submit, or to send_batch in a list"
        raise InvalidMessageError(f"a body is bytes-like, not {type(body).__name__}{hint}") from None


def extras_of(headers: Sequence[Any]) -> Extras:
    """Returns the wire form of the headers that a sender sets, given in the order of `SENT_FIELDS`.

    Raises InvalidMessageError, InvalidTopicError.
    """
    extras: dict[str, Any] = {}
    for field, value in zip(SENT_FIELDS, headers, strict=True):
        assert field.check is not None
        if value is not None or field.default is not None:
            extras[field.name] = field.check(field.name, value)
    return Extras(**extras)


def _to_send(headers: Sequence[Any]) -> Extras:
    extras = extras_of(headers)
    if 0 < extras.expiration <= time_ns() // 1_000_000:
        when = datetime.fromtimestamp(extras.expiration / 1000, tz=timezone.utc)
        warnings.warn(f"a message expired before it was sent, at {when.isoformat()}: nobody gets it", stacklevel=2)
    return extras
