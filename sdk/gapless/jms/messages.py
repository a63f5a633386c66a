"""What every message of the JMS-style profile has: headers, and properties that keep their type (JMS 3.1, chapter 3).

An event has a body of bytes, and properties that are bool, int, float or str. What a message has beyond that travels in
two properties of the vendor's name space. They are shown to nobody as properties, and a selector may name them:

    JMS_gapless_body     the kind of the body: none, text, bytes, map, stream or json; of an event without it, bytes
    JMS_gapless_types    the properties that are a byte, a short, an int or a float: `seats:short,fare:float`;
                         what has no name is the body: `:null` is a text that is None, and not empty
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from datetime import datetime, timedelta, timezone
from math import isfinite
from typing import Any, ClassVar, Final, TypeVar

from gapless.client.messages import Message as SentMessage
from gapless.core.stream.events import Event
from gapless.errors import InvalidTopicError
from gapless.jms.errors import InvalidDestinationError, MessageFormatError, MessageNotWriteableError
from gapless.jms.values import TypedValue, ValueType, checked_text, guessed, read, written
from gapless.selectors.headers import PERSISTENT, PRIORITY, milliseconds
from gapless.selectors.lexer import is_identifier
from gapless.selectors.syntax import is_reserved
from gapless.selectors.topics import check_topic
from gapless.texts import a_or_an

BODY: Final = "JMS_gapless_body"
TYPES: Final = "JMS_gapless_types"
DELIVERY_COUNT: Final = "JMSXDeliveryCount"
_NULL_BODY: Final = ":null"
"""Among the types. Who does not know it passes it over, and takes the text for an empty one."""

_UNIX: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SEEN: Final = {ValueType.BOOLEAN, ValueType.LONG, ValueType.DOUBLE, ValueType.STRING}
"""The types of properties that can be seen in the value itself."""

_Value = TypeVar("_Value")
_Message = TypeVar("_Message")


class Topic:
    """A destination. Two topics of one name are equal."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        """Raises InvalidDestinationError."""
        try:
            self._name = check_topic(name)
        except InvalidTopicError as error:
            raise InvalidDestinationError(str(error)) from error

    def get_topic_name(self) -> str:
        """Returns the name."""
        return self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topic) and other._name == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"Topic({self._name!r})"


def named_getter(
    get_as: Callable[[_Message, str, ValueType], Any], what: str, kind: ValueType, _result: type[_Value]
) -> Callable[[_Message, str], _Value]:
    """Returns a method that gets by its name, as one type, what `get_as` gets as any. `what`: a word for its text."""

    def get(self: _Message, name: str) -> _Value:
        value: _Value = get_as(self, name, kind)
        return value

    get.__doc__ = f"Returns a {what} as {a_or_an(kind.value)}. Raises MessageFormatError if it cannot be read as one."
    return get


def named_setter(
    set_typed: Callable[[_Message, str, TypedValue], None], what: str, kind: ValueType, _value: type[_Value]
) -> Callable[[_Message, str, _Value], None]:
    """The same, of one that sets."""

    def set_(self: _Message, name: str, value: _Value) -> None:
        set_typed(self, name, written(kind, value))

    set_.__doc__ = f"Sets a {what}, as {a_or_an(kind.value)}. Raises MessageNotWriteableError, MessageFormatError."
    return set_


class Message:
    """A message without a body: headers and properties. A context makes it, and the other kinds.

    The headers that the client does not set are set when it is sent, or received; None until then.
    """

    body_kind: ClassVar[str] = "none"
    """What the kind of the body is called on its way."""

    def __init__(self) -> None:
        self._properties: dict[str, TypedValue] = {}
        self._properties_are_read_only = False
        self._body_is_read_only = False
        self._acknowledge: Callable[[], None] | None = None
        self._correlation_id: str | None = None
        self._reply_to: Topic | None = None
        self._type: str | None = None
        self._message_id: str | None = None
        self._timestamp = 0
        self._destination: Topic | None = None
        self._priority = PRIORITY
        self._expiration = 0

    # ---- headers

    def get_jms_message_id(self) -> str | None:
        """Returns `ID:…`: unique in the network for ever; the broker makes it."""
        return self._message_id

    def get_jms_timestamp(self) -> int:
        """Returns when the pubend logged it, in milliseconds since 1970; 0: it was not sent yet."""
        return self._timestamp

    def get_jms_destination(self) -> Topic | None:
        """Returns the topic to which it was sent."""
        return self._destination

    def get_jms_delivery_time(self) -> int:
        """Returns when it may be delivered first: at once, so this is the timestamp."""
        return self._timestamp

    def get_jms_delivery_mode(self) -> str:
        """Returns "PERSISTENT": there is no other."""
        return PERSISTENT

    def get_jms_priority(self) -> int:
        """Returns 0 to 9; 4 by default."""
        return self._priority

    def get_jms_expiration(self) -> int:
        """Returns when it expires, in milliseconds since 1970; 0: never."""
        return self._expiration

    def get_jms_redelivered(self) -> bool:
        """Returns whether it was, or may have been, handed out before."""
        count = self._properties.get(DELIVERY_COUNT)
        return count is not None and count.value > 1

    def get_jms_correlation_id(self) -> str | None:
        """Returns the sender's reference to another message."""
        return self._correlation_id

    def set_jms_correlation_id(self, correlation_id: str | None) -> None:
        """Sets a reference to another message. Raises MessageFormatError."""
        self._correlation_id = _text_or_none(correlation_id, "a correlation id")

    def get_jms_reply_to(self) -> Topic | None:
        """Returns where an answer is to be sent."""
        return self._reply_to

    def set_jms_reply_to(self, topic: Topic | None) -> None:
        """Sets where an answer is to be sent."""
        self._reply_to = topic

    def get_jms_type(self) -> str | None:
        """Returns the sender's name for the kind of message."""
        return self._type

    def set_jms_type(self, name: str | None) -> None:
        """Sets a name for the kind of message. Raises MessageFormatError."""
        self._type = _text_or_none(name, "a type")

    def acknowledge(self) -> None:
        """With CLIENT_ACKNOWLEDGE: acknowledges all that its context has consumed. Otherwise it does nothing."""
        if self._acknowledge is not None:
            self._acknowledge()

    # ---- properties

    def _property_as(self, name: str, kind: ValueType) -> Any:
        return read(self._properties.get(_named(name)), kind)

    def _set_property(self, name: str, value: TypedValue) -> None:
        if self._properties_are_read_only:
            raise MessageNotWriteableError("a received message's properties are read only: call clear_properties()")
        if value.type is ValueType.BYTES:
            raise MessageFormatError("a property holds no bytes: put them into the body")
        if isinstance(value.value, float) and not isfinite(value.value):
            raise MessageFormatError(
                f"property {name!r}: {value.value} is no finite number, and none can be selected by"
            )
        self._properties[_settable(name)] = value

    get_boolean_property = named_getter(_property_as, "property", ValueType.BOOLEAN, bool)
    get_byte_property = named_getter(_property_as, "property", ValueType.BYTE, int)
    get_short_property = named_getter(_property_as, "property", ValueType.SHORT, int)
    get_int_property = named_getter(_property_as, "property", ValueType.INT, int)
    get_long_property = named_getter(_property_as, "property", ValueType.LONG, int)
    get_float_property = named_getter(_property_as, "property", ValueType.FLOAT, float)
    get_double_property = named_getter(_property_as, "property", ValueType.DOUBLE, float)

    set_boolean_property = named_setter(_set_property, "property", ValueType.BOOLEAN, bool)
    set_byte_property = named_setter(_set_property, "property", ValueType.BYTE, int)
    set_short_property = named_setter(_set_property, "property", ValueType.SHORT, int)
    set_int_property = named_setter(_set_property, "property", ValueType.INT, int)
    set_long_property = named_setter(_set_property, "property", ValueType.LONG, int)
    set_float_property = named_setter(_set_property, "property", ValueType.FLOAT, float)
    set_double_property = named_setter(_set_property, "property", ValueType.DOUBLE, float)

    def get_string_property(self, name: str) -> str | None:
        """Returns a property as a text; None: there is no such property."""
        text: str | None = self._property_as(name, ValueType.STRING)
        return text

    def set_string_property(self, name: str, value: str | None) -> None:
        """Sets a property, as a text; None is sent as no property. Raises as the other setters."""
        self._set_property(name, written(ValueType.STRING, value))

    def get_object_property(self, name: str) -> bool | int | float | str | None:
        """Returns a property as Python has it; None: there is no such property."""
        stored = self._properties.get(_named(name))
        return None if stored is None else stored.value

    def set_object_property(self, name: str, value: bool | float | str | None) -> None:  # noqa: FBT001 - any of them
        """Sets a property: a bool as a boolean, an int as a long, a float as a double, a str as a string."""
        self._set_property(name, guessed(value))

    def property_exists(self, name: str) -> bool:
        """Whether there is such a property."""
        return _named(name) in self._properties

    def get_property_names(self) -> list[str]:
        """Returns the names of all properties, in no order; headers are none."""
        return list(self._properties)

    def clear_properties(self) -> None:
        """Removes all properties, after which they can be set. The body stays."""
        self._properties.clear()
        self._properties_are_read_only = False

    # ---- body

    def get_body(self, kind: type[_Value]) -> _Value | None:
        """Returns the body as this type; None: there is none. Raises MessageFormatError if it is of another."""
        if not self.is_body_assignable_to(kind):
            raise MessageFormatError(f"the body of a {type(self).__name__} is no {kind.__name__}")
        body: _Value | None = self._body()
        return body

    def is_body_assignable_to(self, kind: type) -> bool:
        """Whether `get_body` returns the body as this type. What has no body is of every type."""
        body = self._body()
        return body is None or isinstance(body, kind)

    def clear_body(self) -> None:
        """Empties the body, after which it can be written. Properties stay."""
        self._body_is_read_only = False

    # ---- for the profile itself

    def to_sent(self, topic: str, priority: int, expiration: int) -> SentMessage:
        """What is published of it. `expiration`: in milliseconds since 1970; 0: never."""
        stored = {name: value for name, value in self._properties.items() if value.value is not None}
        stored.pop(DELIVERY_COUNT, None)
        properties = {name: value.value for name, value in stored.items()}
        properties[BODY] = self.body_kind
        unseen = [f"{name}:{value.type.value}" for name, value in stored.items() if value.type not in _SEEN]
        if self.body_is_null:
            unseen.append(_NULL_BODY)
        if unseen:
            properties[TYPES] = ",".join(unseen)
        return SentMessage(
            self._encoded(),
            properties,
            topic=topic,
            priority=priority,
            expiration=_UNIX + timedelta(milliseconds=expiration) if expiration else None,
            correlation_id=self._correlation_id,
            reply_to=self._reply_to.get_topic_name() if self._reply_to else None,
            type=self._type,
        )

    def sent_with(self, given: Message) -> Message:
        """A copy, with the properties and headers that its producer was given in the place of its own."""
        copied = copy(self)
        copied._properties = self._properties | given._properties  # noqa: SLF001 - its own class
        copied._correlation_id = given._correlation_id or self._correlation_id  # noqa: SLF001 - as above
        copied._reply_to = given._reply_to or self._reply_to  # noqa: SLF001 - as above
        copied._type = given._type or self._type  # noqa: SLF001 - as above
        return copied

    def on_sent(self, event: Event) -> None:
        """It was sent, and this event's headers are what became of it."""
        self._message_id, self._destination = event.message_id, Topic(event.topic)
        self._timestamp = milliseconds(event.timestamp) or 0
        self._priority, self._expiration = event.priority, milliseconds(event.expiration) or 0

    def acknowledged_by(self, acknowledge: Callable[[], None]) -> None:
        """It was handed out by a context, which acknowledges by this."""
        self._acknowledge = acknowledge

    def take_over(self, event: Event) -> None:
        """Becomes the message of an event, read only. Raises MessageFormatError if the body is not of this kind."""
        self._properties = _typed(event.properties)
        self._properties[DELIVERY_COUNT] = TypedValue(ValueType.INT, event.delivery_count)
        self._decode(event.body)
        self._properties_are_read_only = self._body_is_read_only = True
        self._correlation_id, self._type = event.correlation_id, event.type
        self._reply_to = Topic(event.reply_to) if event.reply_to else None
        self.on_sent(event)

    @property
    def body_is_null(self) -> bool:
        """Whether a body of this kind could be there, and is not."""
        return False

    def _body(self) -> Any:
        """What `get_body` returns."""
        return None

    def _encoded(self) -> bytes:
        """The bytes that are sent."""
        return b""

    def _decode(self, body: bytes) -> None:
        """Takes over the bytes that were received. Raises MessageFormatError."""

    def _write(self) -> None:
        """To be called before the body is changed. Raises MessageNotWriteableError."""
        if self._body_is_read_only:
            raise MessageNotWriteableError("this message's body is read only: call clear_body()")


def is_null(event: Event) -> bool:
    """Whether a message of the profile was sent with a body that is None."""
    return _NULL_BODY in str(event.properties.get(TYPES, "")).split(",")


def _text_or_none(text: str | None, what: str) -> str | None:
    return None if text is None else checked_text(text, what)


def _named(name: str) -> str:
    if not name:
        raise ValueError("the name of a property is not empty")
    return name


def _settable(name: str) -> str:
    """The name, if a client may set such a property."""
    if not is_identifier(_named(name)):
        raise MessageFormatError(f"the name of a property is a selector's identifier and no keyword, not {name!r}")
    if is_reserved(name) or name == DELIVERY_COUNT:
        raise MessageFormatError(
            f"{name!r} is for the provider: JMSXGroupID, JMSXGroupSeq and names of your own can be set"
        )
    return name


def _typed(properties: Mapping[str, bool | int | float | str]) -> dict[str, TypedValue]:
    """The properties of an event, with the types that their sender gave them."""
    typed = {name: guessed(value) for name, value in properties.items() if name not in {BODY, TYPES}}
    for name, _, kind in (each.partition(":") for each in str(properties.get(TYPES, "")).split(",")):
        try:
            typed[name] = written(ValueType(kind), properties[name])
        except (KeyError, ValueError, MessageFormatError):
            continue  # who changed a value and not its type is no JMS-style program: the value is what counts
    return typed
